"""Subscriptions by regular expression: checked when they come, resolved against all topics in a write of its own.

A resolution is kept as a record, so that members with the same expression share it, and is looked over when topics came
or it is old. Source: GroupMetadataManager (maybeUpdateRegularExpressions, handleRegularExpressionsResult) and
TopicRegexResolver. Kafka's expressions are those of RE2/J; RE2 itself reads the same language.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Any

import re2

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.consumer import ConsumerGroup, ConsumerMember, ResolvedRegex, regex_counts
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.protocol.errors import ApiError, Errors

#: Between two resolutions of a group's expressions lie more than this: REGEX_BATCH_REFRESH_MIN_INTERVAL_MS in Kafka's
#: GroupMetadataManager.
MIN_REFRESH_INTERVAL_MS = 10_000


class RegexChange(Enum):
    """What a request did to its member's regular expression."""

    NONE = 0
    #: It is another one, whose topics aren't known yet.
    UPDATED = 1
    #: It is another one (or none any more), and what the member is subscribed to is known at once.
    RESOLVED = 2


#: What RE2/J says where RE2 says something else.
_DESCRIPTIONS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "unexpected )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


@lru_cache(maxsize=4_096)
def _compile(regex: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(regex, options)


def check_regex(regex: str) -> None:
    """Checks that an expression can be read.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION.
    """
    try:
        _compile(regex)
    except re2.error as error:
        said = error.args[0]
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        what = text.partition(": ")[0]
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {_DESCRIPTIONS.get(what, what)}."
        raise ApiError(Errors.INVALID_REGULAR_EXPRESSION, message) from None


def resolve(ctx: Context, regexes: Iterable[str]) -> dict[str, ResolvedRegex]:
    """Returns what each expression matches now.

    One that can't be read (it was accepted by another version) matches nothing.
    """
    resolved = {}
    for regex in regexes:
        try:
            pattern = _compile(regex)
        except re2.error:
            topics: tuple[str, ...] = ()
        else:
            topics = tuple(sorted(name for name in ctx.topics if pattern.fullmatch(name)))
        resolved[regex] = ResolvedRegex(topics, ctx.topics_version, ctx.now_ms)
    return resolved


def regexes_to_refresh(
    ctx: Context, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember, *, is_new: bool
) -> list[str]:
    """Returns the expressions that have to be resolved after this request, all of the group's or none.

    Args:
        is_new: whether the member brought one that nobody in the group had.
    """
    counts = regex_counts(group.members.values())
    if not is_new and not counts:
        return []
    if group.group_id in ctx.resolving and ctx.timers.is_armed(TimerKey(timers.REGEX, group.group_id)):
        return []
    newest = next(iter(group.resolved_regexes.values()), None)
    if newest is not None and ctx.now_ms <= newest.timestamp + MIN_REFRESH_INTERVAL_MS:
        return []
    old, new = member.subscribed_topic_regex, updated.subscribed_topic_regex
    counts.subtract([old] if old else [])
    counts.update([new] if new else [])
    wanted = [regex for regex, count in counts.items() if count > 0]
    is_old = newest is None or ctx.now_ms > newest.timestamp + ctx.settings.group_consumer_regex_refresh_interval_ms
    has_new_topics = (0 if newest is None else newest.version) < ctx.new_topics_version
    if is_new or is_old or has_new_topics or len(wanted) != len(group.resolved_regexes):
        return wanted
    return []
