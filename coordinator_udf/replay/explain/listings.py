"""When a list of all groups was made: each shard's part at a moment of its own while the request was under way.

A part is read from the shard as it is between two of its rows, or two of its timers; where the broker's list is what
the shard has at such a moment, the part is put there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from coordinator_udf.groups.admin import list_groups
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.replay.explain.bounds import Bounds
from coordinator_udf.replay.explain.results import Placed
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.undecided import LogFacts
from coordinator_udf.replay.judge.compare import Difference, answer_error
from coordinator_udf.replay.recording import ReplaySource, number_offsets
from coordinator_udf.shard.apis import Availability
from coordinator_udf.shard.shard import PoisonRow, Shard
from schemas.requests import CONTROL_APIS

Row = dict[str, Any]
_US = 1_000
#: In place of a time, of a part that is right where it usually is.
_AS_USUAL = -1
_FIELDS = Request._fields


class Listing(NamedTuple):
    """A shard's part of a list that differs: the groups that the broker had in it, and when it was under way (us)."""

    place: int
    entry: Entry
    groups: dict[str, dict[str, Any]]
    states: tuple[str, ...]
    types: tuple[str, ...]


def place_listings(
    source: ReplaySource,
    facts: LogFacts,
    differences: Iterable[Difference],
    bounds: Bounds = Bounds(),  # noqa: B008
) -> list[Placed]:
    """Puts parts of lists that differ at moments at which the shard has what the broker said.

    The source's rows change.

    Args:
        differences: what differs as the rows stand.
    """
    by_shard = _by_shard(source)
    placed: list[Placed] = []
    for partition, wanted in _wanted(source, facts, differences, by_shard):
        placed += _place(source, facts, by_shard[partition], wanted, bounds)
    if placed:
        source.rows[:] = [row for _, rows in sorted(by_shard.items()) for row in rows]
        number_offsets(source.rows)
    return placed


def _by_shard(source: ReplaySource) -> dict[int, list[Row]]:
    by_shard: defaultdict[int, list[Row]] = defaultdict(list)
    for row in source.rows:
        by_shard[row["partition"]].append(row)
    return by_shard


def _wanted(
    source: ReplaySource, facts: LogFacts, differences: Iterable[Difference], by_shard: Mapping[int, Sequence[Row]]
) -> Iterator[tuple[int, list[Listing]]]:
    """By shard the parts of lists that differ."""
    told = {d.request_id: d for d in differences if d.api == "ListGroups" and d.recorded and d.ours}
    for partition, rows in by_shard.items() if told else ():
        wanted = [
            listing
            for place, row in enumerate(rows)
            if row["request_id"] in told
            and (listing := _listing(source, facts, told[row["request_id"]], partition, place)) is not None
        ]
        if wanted:
            yield partition, wanted


def _listing(
    source: ReplaySource, facts: LogFacts, difference: Difference, partition: int, place: int
) -> Listing | None:
    """Returns a shard's part of the list, if it has other groups than ours, or some shard refused ours."""
    entry = facts.entries[difference.request_id or ""]
    theirs, ours = (
        {
            group["groupId"]: group
            for group in side["body"].get("groups") or ()
            if partition_for(group["groupId"], source.partitions) == partition and facts.knows(entry, group["groupId"])
        }
        for side in (difference.recorded, difference.ours)
    )
    errors = [answer_error(side["body"]) for side in (difference.recorded, difference.ours)]
    is_refused = errors[0] == Errors.NONE != errors[1]
    if theirs == ours and not is_refused:
        return None
    states, types = (tuple(entry.request.get(name) or ()) for name in ("statesFilter", "typesFilter"))
    return Listing(place, entry, theirs, states, types)


def _place(
    source: ReplaySource,
    facts: LogFacts,
    rows: list[Row],
    wanted: Sequence[Listing],
    bounds: Bounds,
) -> Iterator[Placed]:
    """Runs the shard up to the last list, and looks at it while the lists were under way."""
    partition = rows[0]["partition"]
    ranges = {listing.place: _range(rows, listing, facts, bounds) for listing in wanted}
    last = max(end for _, end in ranges.values())
    found: dict[int, tuple[int, int]] = {}
    coming = sorted(wanted, key=lambda listing: ranges[listing.place], reverse=True)
    looking: list[Listing] = []
    shard = Shard(partition, source.settings, keep_log=any(row["api"] == "Failover" for row in rows))
    try:
        for number, row in enumerate(rows[: last + 1]):
            while coming and ranges[coming[-1].place][0] <= number:
                looking.append(coming.pop())
            looking = [listing for listing in looking if number <= ranges[listing.place][1]]
            while (deadline_ms := shard.ctx.timers.next_deadline_ms()) is not None and deadline_ms <= row["log_ts"]:
                # What a timer ends long before the list was asked for isn't in it.
                until_us = (deadline_ms + bounds.late_ms) * _US
                _look(shard, [w for w in looking if w.entry.arrived_us <= until_us], number, facts, found)
                shard.run_timers(deadline_ms, 0)
            here = [listing for listing in looking if listing.place == number]
            _look(shard, here, number, facts, found, is_usual=True)
            _look(shard, [listing for listing in looking if listing.place != number], number, facts, found)
            shard.handle_row(Request(*(row[name] for name in _FIELDS)), 0)
            for said in shard.ctx.decisions.by_kind().values():
                said.clear()
    except PoisonRow:
        return
    moving = {place: rows[place] for place, (_, at_ms) in found.items() if at_ms != _AS_USUAL}
    for place, (number, at_ms) in sorted(found.items(), key=lambda item: item[1], reverse=True):
        if at_ms == _AS_USUAL:
            continue
        row = moving[place]
        yield Placed(row["request_id"], partition, at_ms, at_ms - row["log_ts"])
        rows.insert(number, {**row, "log_ts": at_ms})
    gone = {id(row) for row in moving.values()}
    rows[:] = [row for row in rows if id(row) not in gone]


def _look(
    shard: Shard,
    looking: Sequence[Listing],
    number: int,
    facts: LogFacts,
    found: dict[int, tuple[int, int]],
    *,
    is_usual: bool = False,
) -> None:
    """Notes, of the moments at which the shard has what the broker said, the one nearest to the usual one."""
    for listing in looking:
        known = found.get(listing.place)
        nearer = known is not None and abs(known[0] - listing.place) <= abs(number - listing.place)
        if nearer and not is_usual:
            continue
        if shard.availability is Availability.LOADING:
            # The whole list would be refused.
            continue
        groups = list_groups(shard.ctx, shard.store, listing.states, listing.types)
        ours = {group["groupId"]: group for group in groups if facts.knows(listing.entry, group["groupId"])}
        if ours.keys() == listing.groups.keys() and all(
            ours[group_id].get(name) == value
            for group_id, told in listing.groups.items()
            for name, value in told.items()
        ):
            found[listing.place] = number, _AS_USUAL if is_usual else shard.ctx.now_ms


def _range(rows: Sequence[Row], listing: Listing, facts: LogFacts, bounds: Bounds) -> tuple[int, int]:
    """Returns the rows before which the part may stand: it overlaps with all rows between its usual place and there."""
    entry = listing.entry
    first = last = listing.place
    while first > 0 and _may_precede(entry, rows[first - 1], facts, bounds):
        first -= 1
    while last + 1 < len(rows) and _may_follow(entry, rows[last + 1], facts, bounds):
        last += 1
    return first, last + 1


def _may_precede(entry: Entry, row: Row, facts: LogFacts, bounds: Bounds) -> bool:
    """Returns whether the list may have been made before a row that is taken to come before it.

    What a row changed is listed once it is on the disk: no later than its answer, if that waits for it. That a member
    needs an id is told at once; the record of the group that it asked for, if that is new, is written meanwhile.
    Source: GroupMetadataManager.classicGroupJoinToClassicGroup.
    """
    if row["api"] in CONTROL_APIS:
        return bool(row["log_ts"] * _US >= entry.arrived_us - bounds.late_ms * _US)
    other = facts.entries[row["request_id"]]
    late_us = bounds.late_ms * _US if other.is_answered_at_once else 0
    return other.connection != entry.connection and other.answered_us + other.exact_us + late_us >= entry.arrived_us


def _may_follow(entry: Entry, row: Row, facts: LogFacts, bounds: Bounds) -> bool:
    """Returns whether the list may have been made after a row that is taken to come behind it."""
    if row["api"] in CONTROL_APIS:
        return bool(row["log_ts"] * _US <= entry.answered_us)
    other = facts.entries[row["request_id"]]
    return other.connection != entry.connection and other.arrived_us <= entry.answered_us + entry.exact_us
