"""Makes names for topics that a log knows by their ids only, where members got them by a regular expression.

A name that nobody says matters to expressions alone: they match it or don't. So a topic that was assigned to those who
subscribed by an expression gets a name that the expression matches, and those of others don't: that of a topic that is
known by its name only, or one with its id in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

import re2

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.topic_subscriptions import assigned_topics, one_each

#: What stands for a part of an expression: a class for its first character, a group for its first alternative.
_PARTS = (
    (re.compile(r"\[([^]^\\])[^]]*\]"), r"\1"),
    (re.compile(r"\((?:\?:)?([^()|?]*)(?:\|[^()]*)?\)"), r"\1"),
    (re.compile(r"\|.*|[\^$]"), ""),
    (re.compile(r"\\[dw]"), "0"),
)
_ANYTHING = re.compile(r"\.[*+]")
_DOT = re.compile(r"\\\.")
#: What may come before an id, for an expression of somebody else to match the name or not.
_BEFORE = ("", "_", "-", "0", "z", "Z")


def names_by_expressions(
    entries: Iterable[Entry], nameless: Sequence[str], unidentified: Collection[str]
) -> dict[str, str]:
    """Returns topic id -> a name that all expressions match by which the topic was assigned, where one is found.

    That is the name of a topic whose id nothing tells, for who subscribed by an expression is assigned it, too; or one
    that is made.

    Args:
        entries: the log in order.
        nameless: the ids that have no name.
        unidentified: the names of topics whose ids aren't known.
    """
    expressions, every = _expressions(entries, frozenset(nameless))
    names = sorted(unidentified)
    left = {each: [name for name in names if _all_match(regexes, name)] for each, regexes in expressions.items()}
    found = {topic_id: name for name, topic_id in one_each(left).items()}
    for topic_id, regexes in expressions.items():
        made = [_name(regex, before + topic_id) for before in _BEFORE for regex in regexes]
        fits = [name for name in made if _all_match(regexes, name)]
        others = [regex for regex in every if regex not in regexes]
        alone = (name for name in fits if not any(_matches(regex, name) for regex in others))
        if fits:
            found.setdefault(topic_id, next(alone, fits[0]))
    return found


def _all_match(regexes: Iterable[str], name: str) -> bool:
    return all(_matches(regex, name) for regex in regexes)


def _expressions(entries: Iterable[Entry], nameless: frozenset[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Returns by topic id the expressions of those who were assigned it; and all that there are."""
    subscribed: dict[tuple[str, str], str] = {}
    found: dict[str, list[str]] = {}
    every: dict[str, None] = {}
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
            if regex:
                every[regex] = None
        for topic_id in assigned_topics(answer) if subscribed.get(member) else ():
            if topic_id in nameless and subscribed[member] not in found.setdefault(topic_id, []):
                found[topic_id].append(subscribed[member])
    return found, list(every)


def matching_name(regex: str, text: str) -> str | None:
    """Returns a name with a text in it that an expression matches; None where none is found."""
    name = _name(regex, text)
    return name if _matches(regex, name) else None


def _matches(regex: str, name: str) -> bool:
    compiled = _compiled(regex)
    return compiled is not None and compiled.fullmatch(name) is not None


@cache
def _compiled(regex: str) -> Any:
    """Returns an expression as RE2 has it; None if it can't be read, for another version of the broker could."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error:
        return None


def _name(regex: str, topic_id: str) -> str:
    """Returns a text that a plain expression matches; of another one it may not."""
    text = regex
    for part, stands in _PARTS:
        text = part.sub(stands, text)
    return _DOT.sub(".", _ANYTHING.sub(topic_id, text))
