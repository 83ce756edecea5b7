"""What a broker's own log says of `group.consumer.session.timeout.ms`, which the requests beside it don't say outright.

It has a line on each member whose session was over; the request log tells when that member was heard last. A replay
with another session timeout would contradict those lines, so what they say is taken unless the setting was given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.explain.bounds import Bounds
from coordinator_udf.replay.explain.expiry_bounds import MOST, Bound
from coordinator_udf.replay.explain.proposals import LEAST_OF, common_value
from coordinator_udf.replay.explain.session_bounds import SESSION
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.reader import BROKER_SETTINGS
from coordinator_udf.replay.inputs.info_log.events import InfoEvent
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.settings.coordinator import FIELDS, Settings, SettingsError

_US: Final = 1_000
_LATE_MS: Final = Bounds().late_ms
#: Where a shard is loaded, or goes elsewhere, sessions begin anew.
_RENEWING: Final = frozenset(
    str(event)
    for event in (InfoEvent.SHARD_LOADING, InfoEvent.SHARD_LOADED, InfoEvent.SHARD_UNLOADING,
                  InfoEvent.GROUP_LOADED, InfoEvent.GROUP_UNLOADED)
)  # fmt: skip

#: A group, and a member of it.
_Who = tuple[str, str]


class Taken(NamedTuple):
    """The options with what was taken from a broker's own log, and a line that says so."""

    options: ReplayOptions
    line: str


class _Heard(NamedTuple):
    """When a member's request came, and when it was answered (ms)."""

    arrived_ms: int
    answered_ms: int


def with_told_session(
    options: ReplayOptions, lines: Sequence[Mapping[str, Any]], entries: Iterable[Entry]
) -> Taken | None:
    """Returns the options with the session timeout of consumer groups that both logs tell together.

    None where it was given, where the one that the options have fits, and where no value fits all.

    Args:
        lines: of the broker's own log, as rows of coordinator_log.
        entries: the request log, in its order.
    """
    expired = [line for line in lines if line["event"] == InfoEvent.SESSION_EXPIRED and line["member_id"] is not None]
    given = getattr(options.base, FIELDS[SESSION].name)
    if not expired or SESSION in options.overrides or given != getattr(Settings(), FIELDS[SESSION].name):
        return None
    renewed = [(line["ts"], line["partition"]) for line in lines if line["event"] in _RENEWING]
    lived, ended = _bounds(expired, renewed, entries)
    value = common_value([*lived, *ended]) if ended else None
    if value is None or all(bound.least <= given <= bound.most for bound in ended):
        return None
    values = {SESSION: str(value)}
    if value < getattr(options.base, FIELDS[LEAST_OF[SESSION]].name):
        values[LEAST_OF[SESSION]] = str(value)
    taken = msgspec.structs.replace(options, overrides={**values, **options.overrides})
    try:
        taken.settings(BROKER_SETTINGS)
    except SettingsError:
        return None
    return Taken(taken, _line(values, ended))


def _line(values: Mapping[str, str], ended: Sequence[Bound]) -> str:
    least, most = max(bound.least for bound in ended), min(bound.most for bound in ended)
    settings = " ".join(f"--set {name}={value}" for name, value in values.items())
    who = "1 member" if len(ended) == 1 else f"{len(ended)} members"
    return f"{settings} taken from the broker's own log, which put out {who} after {least} to {most} ms of silence"


def _bounds(
    expired: Sequence[Mapping[str, Any]], renewed: Sequence[tuple[int, int | None]], entries: Iterable[Entry]
) -> tuple[list[Bound], list[Bound]]:
    """Returns what says of a session that it lasted as long, and what says that it was over.

    Args:
        renewed: when shards were loaded or went, and which; None where that isn't told.
    """
    names = {(line["group_id"], line["member_id"]) for line in expired}
    heard: dict[_Who, list[_Heard]] = defaultdict(list)
    last: dict[_Who, _Heard] = {}
    lived: list[Bound] = []
    ends_ms = 0
    for entry in entries:
        ends_ms = max(ends_ms, entry.written_us // _US)
        who = _renewing(entry)
        if who is None:
            continue
        at = _Heard(entry.arrived_us // _US, entry.written_us // _US)
        before = last.get(who)
        last[who] = at
        if who in names:
            heard[who].append(at)
        if before is None or entry.request["memberEpoch"] <= 0:
            continue
        # The longest silence that a member lived through says most.
        silent_ms = at.arrived_ms - before.answered_ms - _LATE_MS
        is_longest = silent_ms > (lived[-1].least if lived else 0)
        if is_longest and not any(before.arrived_ms <= ts <= at.answered_ms for ts, _ in renewed):
            lived.append(Bound(at.answered_ms, SESSION, silent_ms, MOST))
    return lived[-1:], [bound for line in expired for bound in _ended(line, heard, renewed, ends_ms)]


def _ended(
    line: Mapping[str, Any], heard: Mapping[_Who, list[_Heard]], renewed: Sequence[tuple[int, int | None]], ends_ms: int
) -> Iterator[Bound]:
    """Yields how long a session was that a line says to be over; nothing if requests may be missing."""
    ts: int = line["ts"]
    of_member = sorted(heard.get((line["group_id"], line["member_id"]), []))
    place = bisect_right([each.arrived_ms for each in of_member], ts)
    if not place or ts > ends_ms:
        return
    last = of_member[place - 1]
    if any(last.arrived_ms <= at <= ts and partition in {None, line["partition"]} for at, partition in renewed):
        return
    # Timers are late, never early, but for the milliseconds that are cut off.
    yield Bound(ts, SESSION, max(ts - last.answered_ms - _LATE_MS, 1), ts - last.arrived_ms + 1)


def _renewing(entry: Entry) -> _Who | None:
    """Returns whose session a request renews; None where it doesn't."""
    if (
        entry.api != "ConsumerGroupHeartbeat"
        or entry.response is None
        or entry.response.get("errorCode") != Errors.NONE
    ):
        return None
    epoch, told = entry.request.get("memberEpoch"), entry.response.get("memberEpoch")
    if not isinstance(epoch, int) or not isinstance(told, int) or epoch < 0 or told < 0:
        return None
    member_id = entry.response.get("memberId") or entry.request.get("memberId")
    return str(entry.request.get("groupId")), str(member_id)
