"""Makes names for topics that a log knows by their ids only, where members got them by a regular expression.

A name that nobody says matters to expressions alone: they match it or don't. So a topic that was assigned to those who
subscribed by an expression gets a name that the expression matches, with its id in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import re2

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.topic_subscriptions import assigned_topics

#: What stands for a part of an expression: a class for its first character, a group for its first alternative.
_PARTS = (
    (re.compile(r"\[([^]^\\])[^]]*\]"), r"\1"),
    (re.compile(r"\((?:\?:)?([^()|?]*)(?:\|[^()]*)?\)"), r"\1"),
    (re.compile(r"\|.*|[\^$]"), ""),
    (re.compile(r"\\[dw]"), "0"),
)
_ANYTHING = re.compile(r"\.[*+]")
_DOT = re.compile(r"\\\.")


def names_by_expressions(entries: Iterable[Entry], nameless: Sequence[str]) -> dict[str, str]:
    """Returns topic id -> a name that all expressions match by which the topic was assigned, where one is found.

    Args:
        entries: the log in order.
        nameless: the ids that have no name.
    """
    found: dict[str, str] = {}
    for topic_id, regexes in _expressions(entries, frozenset(nameless)).items():
        names = (_name(regex, topic_id) for regex in regexes)
        name = next((name for name in names if all(_matches(regex, name) for regex in regexes)), None)
        if name is not None:
            found[topic_id] = name
    return found


def _expressions(entries: Iterable[Entry], nameless: frozenset[str]) -> dict[str, list[str]]:
    """Returns by topic id the expressions of those who were assigned it."""
    subscribed: dict[tuple[str, str], str] = {}
    found: dict[str, list[str]] = {}
    for entry in entries:
        if entry.api != "ConsumerGroupHeartbeat":
            continue
        request, answer = entry.request, entry.response or {}
        if answer.get("errorCode"):
            continue
        member = str(request.get("groupId")), answer.get("memberId") or request.get("memberId") or ""
        regex = request.get("subscribedTopicRegex")
        if regex is not None:
            subscribed[member] = regex
        for topic_id in assigned_topics(answer) if subscribed.get(member) else ():
            if topic_id in nameless and subscribed[member] not in found.setdefault(topic_id, []):
                found[topic_id].append(subscribed[member])
    return found


def matching_name(regex: str, text: str) -> str | None:
    """Returns a name with a text in it that an expression matches; None where none is found."""
    name = _name(regex, text)
    return name if _matches(regex, name) else None


def _matches(regex: str, name: str) -> bool:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options).fullmatch(name) is not None
    except re2.error:
        # Another version of the broker could read it.
        return False


def _name(regex: str, topic_id: str) -> str:
    """Returns a text that a plain expression matches; of another one it may not."""
    text = regex
    for part, stands in _PARTS:
        text = part.sub(stands, text)
    return _DOT.sub(".", _ANYTHING.sub(topic_id, text))
