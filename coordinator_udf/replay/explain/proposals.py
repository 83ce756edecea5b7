"""Settings that a broker had, where its answers contradict those that a replay was given: proposed, never applied.

Each answer that depends on a setting bounds it. Bounds are taken together in the order of time; where they exclude each
other, the setting was changed in between.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.settings.coordinator import FIELDS, Settings

_MOST: Final = 2**31 - 1
_US: Final = 1_000
#: So late a timer may fire, in milliseconds.
_LATE_MS: Final = 250
#: A setting that may be 0, and is less than this, is proposed as 0.
_NEARLY_NOTHING_MS: Final = 10
#: So many answers have to contradict a setting: one alone may be wrong itself.
_LEAST_ANSWERS: Final = 2
#: Session timeouts that are refused below Kafka's default of the shortest are taken to be too short, others too long.
_SHORT_SESSION_MS: Final = Settings().group_min_session_timeout_ms
#: No field of an answer says it, so none that is wrong can: one bound will do where no other agrees with the setting.
_DELAY: Final = "group.initial.rebalance.delay.ms"
_SIZE: Final = "group.max.size"
#: How many members a group had that took one more, and one that took no more.
_JOINED, _FULL = f"{_SIZE}, joined", f"{_SIZE}, refused"
_CAPACITY: Final = re.compile(r"maximum capacity of (\d+) members")


class Bound(NamedTuple):
    """What one answer says of a setting: it is from ``least`` to ``most``. The time is in milliseconds."""

    ts: int
    name: str
    least: int
    most: int


class Span(NamedTuple):
    """What the answers from one time to another say of a setting together, and how many exclude the value given."""

    name: str
    first_ts: int
    last_ts: int
    least: int
    most: int
    contradicting: int


def proposal_lines(bounds: Iterable[Bound], settings: Settings) -> list[str]:
    """One line a setting, and a time, in which the broker had another value than the replay was given.

    Args:
        bounds: of all parts of a log, in any order.
    """
    by_name: dict[str, list[Bound]] = {}
    for bound in sorted(_with_sizes(bounds)):
        by_name.setdefault(bound.name, []).append(bound)
    lines = []
    for name, of_name in sorted(by_name.items()):
        given = int(getattr(settings, FIELDS[name].name))
        agrees = any(bound.least <= given <= bound.most for bound in of_name)
        least = 1 if name == _DELAY and not agrees else _LEAST_ANSWERS
        spans = [span for span in _spans(of_name, given) if span.contradicting >= least and not _has(span, given)]
        lines += [_line(span, given) for span in _joined(spans)]
    return lines


def _joined(spans: Sequence[Span]) -> list[Span]:
    """The spans, with those put together that give one value."""
    joined: list[Span] = []
    for span in spans:
        if joined and _round(joined[-1]) == _round(span):
            last = joined.pop()
            both = last.contradicting + span.contradicting
            least, most = min(last.least, span.least), max(last.most, span.most)
            joined.append(Span(last.name, last.first_ts, span.last_ts, least, most, both))
        else:
            joined.append(span)
    return joined


def _has(span: Span, value: int) -> bool:
    return span.least <= value <= span.most


def _line(span: Span, given: int) -> str:
    when = f" from {_time(span.first_ts)} to {_time(span.last_ts)}"
    bounds = str(span.least) if span.least == span.most else f"{span.least} to {span.most}"
    if span.most == _MOST:
        bounds = f"at least {span.least}"
    return (
        f"--set {span.name}={_round(span)}{when}: {span.contradicting} answers say {bounds}, "
        f"but the replay was given {given}"
    )


def _time(ts: int) -> str:
    return f"{datetime.fromtimestamp(ts / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


def _round(span: Span) -> int:
    """The roundest number within the bounds; of several the greatest."""
    if span.most == _MOST:
        return span.least
    if not span.least and span.most < _NEARLY_NOTHING_MS:
        return 0
    step = int("1" + "0" * len(str(span.most)))
    while step > 1:
        value = span.most // step * step
        if value >= max(span.least, 1):
            return value
        step //= 10
    return span.most


def _spans(bounds: Sequence[Bound], given: int) -> Iterator[Span]:
    """Cuts a setting's time where its bounds exclude each other."""
    span: Span | None = None
    for bound in bounds:
        against = int(not bound.least <= given <= bound.most)
        if span is not None and max(span.least, bound.least) <= min(span.most, bound.most):
            span = span._replace(
                last_ts=bound.ts,
                least=max(span.least, bound.least),
                most=min(span.most, bound.most),
                contradicting=span.contradicting + against,
            )
            continue
        if span is not None:
            yield span
        span = Span(bound.name, bound.ts, bound.ts, bound.least, bound.most, against)
    if span is not None:
        yield span


# -- what answers say -------------------------------------------------------------------------------------------------


def bounds_of(entries: Iterable[Entry]) -> Iterator[Bound]:
    """What the answers of a log say of settings, or those of some shards of it."""
    known = list(entries)
    mixed = {
        str(entry.request.get("groupId"))
        for entry in known
        if entry.api == "ConsumerGroupHeartbeat" and entry.response and entry.response.get("errorCode") == Errors.NONE
    }
    sizes: dict[str, int] = {}
    for entry in known:
        if entry.response is None:
            continue
        if entry.api == "JoinGroup":
            yield from _of_session(entry, entry.response)
            # A group that was one of KIP-848 for a while has that protocol's limits, and no initial delay.
            if entry.request.get("groupId") not in mixed:
                yield from _of_join(entry, entry.response, sizes)
        elif entry.api == "ConsumerGroupHeartbeat":
            yield from _of_heartbeat(entry, entry.response)
        elif entry.api == "OffsetCommit":
            yield from _of_commit(entry, entry.response)


def _with_sizes(bounds: Iterable[Bound]) -> Iterator[Bound]:
    """The bounds, those of a classic group's size as what most of those say that were refused."""
    full: list[Bound] = []
    joined: list[Bound] = []
    for bound in bounds:
        if bound.name == _FULL:
            full.append(bound)
        elif bound.name == _JOINED:
            joined.append(bound)
        else:
            yield bound
    votes = Counter(bound.least for bound in full if bound.least)
    if not votes:
        yield from (bound._replace(name=_SIZE) for bound in joined)
        return
    # Of those that as many say the largest, whatever the order.
    size, _ = max(votes.items(), key=lambda vote: (vote[1], vote[0]))
    yield from (Bound(bound.ts, _SIZE, size, size) for bound in full)


def _of_session(entry: Entry, answer: dict[str, Any]) -> Iterator[Bound]:
    error = answer.get("errorCode")
    session_ms = entry.request.get("sessionTimeoutMs")
    shortest, longest = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
    ts = entry.log_ts
    if isinstance(session_ms, int) and error in {Errors.NONE, Errors.MEMBER_ID_REQUIRED}:
        yield Bound(ts, shortest, 0, session_ms)
        yield Bound(ts, longest, session_ms, _MOST)
    elif isinstance(session_ms, int) and error == Errors.INVALID_SESSION_TIMEOUT:
        is_short = session_ms < _SHORT_SESSION_MS
        yield Bound(ts, shortest, session_ms + 1, _MOST) if is_short else Bound(ts, longest, 0, max(session_ms - 1, 0))


def _of_join(entry: Entry, answer: dict[str, Any], sizes: dict[str, int]) -> Iterator[Bound]:
    """What an answer to a member of a classic group says; ``sizes`` are the groups' numbers of members so far."""
    error, ts = answer.get("errorCode"), entry.log_ts
    members = answer.get("members") or ()
    group_id = str(entry.request.get("groupId"))
    sizes[group_id] = len(members) or sizes.get(group_id, 0)
    if error == Errors.NONE and members:
        yield Bound(ts, _JOINED, len(members), _MOST)
        waited_ms = (entry.answered_us - entry.handled_us) // _US
        if answer.get("generationId") == 1 and len(members) == 1:
            yield Bound(ts, _DELAY, max(waited_ms - _LATE_MS, 0), waited_ms)
    elif error == Errors.GROUP_MAX_SIZE_REACHED:
        yield Bound(ts, _FULL, sizes[group_id], sizes[group_id])


def _of_heartbeat(entry: Entry, answer: dict[str, Any]) -> Iterator[Bound]:
    interval_ms = answer.get("heartbeatIntervalMs")
    if answer.get("errorCode") == Errors.NONE and isinstance(interval_ms, int) and interval_ms > 0:
        yield Bound(entry.log_ts, "group.consumer.heartbeat.interval.ms", interval_ms, interval_ms)
    full = _CAPACITY.search(answer.get("errorMessage") or "")
    if full is not None:
        yield Bound(entry.log_ts, "group.consumer.max.size", int(full[1]), int(full[1]))


def _of_commit(entry: Entry, answer: dict[str, Any]) -> Iterator[Bound]:
    asked = {
        (topic.get("name") or topic.get("topicId"), partition["partitionIndex"]): partition
        for topic in entry.request.get("topics") or ()
        for partition in topic.get("partitions") or ()
    }
    for topic in answer.get("topics") or ():
        for told in topic.get("partitions") or ():
            partition = asked.get((topic.get("name") or topic.get("topicId"), told["partitionIndex"]), {})
            length = len(partition.get("committedMetadata") or "")
            if told.get("errorCode") == Errors.NONE:
                if length:
                    yield Bound(entry.log_ts, "offset.metadata.max.bytes", length, _MOST)
            elif told.get("errorCode") == Errors.OFFSET_METADATA_TOO_LARGE and length:
                yield Bound(entry.log_ts, "offset.metadata.max.bytes", 0, length - 1)
