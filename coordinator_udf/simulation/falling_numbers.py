"""Finds generations and epochs that fall: a group's, its members', what members are told, also over a migration."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from coordinator_udf.groups.decisions import PLACES
from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.violation import Violation

_TRANSITION = PLACES["transitions"]
_BEGUN = "ts", "group_id", "from_state", "to_state", "generation"
#: What records call the number that only rises, by their type.
_RISING = {
    "GroupMetadata": "generation",
    "ConsumerGroupMetadata": "epoch",
    "ConsumerGroupTargetAssignmentMetadata": "assignmentEpoch",
    "ConsumerGroupCurrentMemberAssignment": "memberEpoch",
}
#: Records of a whole group. A group that gets another type goes on with the number that it had.
_GROUPS = frozenset({"GroupMetadata", "ConsumerGroupMetadata"})


def falling_numbers(history: History) -> Iterator[Violation]:
    """Yields the generations and epochs that are lower than one before them."""
    ended_ms: dict[str, list[int]] = defaultdict(list)
    yield from _recorded(history, ended_ms)
    yield from _told(history, ended_ms)
    yield from _begun(history, ended_ms)


@dataclass(frozen=True, slots=True)
class _Ended:
    """A group whose record was taken back, be it for one of another type.

    Attributes:
        had_members: as far as its record says, which that of a consumer group doesn't.
    """

    ts_ms: int
    number: int
    had_members: bool


def _recorded(history: History, ended_ms: dict[str, list[int]]) -> Iterator[Violation]:
    """Yields the numbers that fall in records; notes when groups ended."""
    last: dict[tuple[str, str, str | None], int] = {}
    has_members: dict[str, bool] = {}
    ended: dict[str, _Ended] = {}
    for ts_ms, group_id, kind, member_id, value in history.records(_RISING):
        key = group_id, kind, member_id
        if value is None:
            # The group, or its member, is no more, or of another type from now on; a new one begins anew.
            number = last.pop(key, 0)
            if kind in _GROUPS:
                ended[group_id] = _Ended(ts_ms, number, has_members.pop(group_id, False))
                ended_ms[group_id].append(ts_ms)
            continue
        number = value[_RISING[kind]]
        if number < 0:
            # A static member that is away has its epoch again when it is back.
            continue
        if kind == "GroupMetadata":
            has_members[group_id] = bool(value["members"])
        before = ended.pop(group_id, None) if kind in _GROUPS else None
        # A group without members is replaced by a new one; one with members is migrated.
        goes_on = value["members"] if kind == "GroupMetadata" else before is not None and before.had_members
        if before is not None and goes_on and before.ts_ms == ts_ms and number < before.number:
            detail = f"{_RISING[kind]} {number} after {before.number} of the group's other type"
            yield Violation(ts_ms, group_id, "falling number", detail)
        if number < last.get(key, number):
            whose = f" of {history.process_of.get(member_id, member_id)}" if member_id else ""
            detail = f"{_RISING[kind]}{whose} {number} after {last[key]}"
            yield Violation(ts_ms, group_id, "falling number", detail)
        last[key] = number


def _told(history: History, ended_ms: dict[str, list[int]]) -> Iterator[Violation]:
    """Yields the numbers that fall of those that members are told.

    What a member is told by the answer to a JoinGroup may come again if the coordinator is lost before the SyncGroups:
    a generation is recorded only then. So those count in which a member took part.
    """
    last: dict[str, tuple[int, int]] = {}
    for one in history.memberships:
        if not one.is_stable or one.number <= 0:
            continue
        before_ms, before = last.get(one.process, (one.ts_ms, one.number))
        ends = ended_ms.get(one.group_id, ())
        has_ended = bisect_right(ends, one.ts_ms) > bisect_right(ends, before_ms)
        if one.number < before and not has_ended:
            detail = f"{one.process} is told {one.number} after {before}"
            yield Violation(one.ts_ms, one.group_id, "falling number", detail)
        last[one.process] = one.ts_ms, one.number


def _begun(history: History, ended_ms: dict[str, list[int]]) -> Iterator[Violation]:
    """Yields the generations that begin with a number that one before them had, which their members would share.

    A coordinator that is loaded begins one again that wasn't stored.
    """
    last: dict[str, tuple[int, int]] = {}
    for row in history.transitions():
        ts_ms, group_id, from_state, to_state, generation = (row[_TRANSITION[name]] for name in _BEGUN)
        if from_state != to_state == ClassicGroupState.COMPLETING_REBALANCE:
            before_ms, before = last.get(group_id, (ts_ms, generation - 1))
            ends = ended_ms.get(group_id, ())
            if generation <= before and bisect_right(ends, ts_ms) == bisect_right(ends, before_ms):
                detail = f"generation {generation} begins after generation {before}"
                yield Violation(ts_ms, group_id, "falling number", detail)
            last[group_id] = ts_ms, generation
        elif row[_TRANSITION["rule"]] in {GroupEvent.UNLOADED, GroupEvent.LOADED}:
            last.pop(group_id, None)
