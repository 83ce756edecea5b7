"""What the greatest size of a group promises: no group has more members, and only a full one turns anybody away.

Three things that Kafka's coordinator does all the same have kinds of their own.

Who is a member is taken from what the coordinator wrote to its log. Of a classic group that is written when a
generation has been formed; who waits for the next one stands nowhere, though these count, too, so of a classic group
that is in between isn't told that it turned somebody away who had a place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from coordinator_udf.groups.decisions import PLACES
from coordinator_udf.groups.model.classic_states import ClassicGroupState
from coordinator_udf.simulation.history import NO_LIMIT, History, TurnedAway
from coordinator_udf.simulation.violation import Violation

#: Static members that are away keep their places, and as many others have joined as may.
OVER_FULL = "over full"
#: A static member can't come back to its own place, for the group is full, itself among the members (KAFKA-20601).
NO_WAY_BACK = "no way back"
#: A member of a classic group is late to join again, and others have the places by then.
PUT_OUT = "put out"
_TURNED_AWAY = "turned away"
_WHAT = {
    _TURNED_AWAY: "is turned away from a group that isn't full, or that it is a member of",
    NO_WAY_BACK: "is turned away from a full group that its instance is a member of",
    PUT_OUT: "was a member, and is turned away: its group is full before it has joined again",
}
_WAITS_FOR_JOINS = frozenset({ClassicGroupState.PREPARING_REBALANCE})
#: The states of a classic group whose members the log doesn't have yet.
_UNWRITTEN = frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE})
_TRANSITION = PLACES["transitions"]


class _Size(NamedTuple):
    """How large a group is from a time on.

    Attributes:
        limit: how many members it may have.
    """

    ts_ms: int
    limit: int
    members: int

    def is_full_for(self, limit: int) -> bool:
        """Tells whether there is no place for one whose protocol's groups may have so many members."""
        return self.members >= min(self.limit, limit)


class _Oversize(NamedTuple):
    """A group that has more members than it may.

    Attributes:
        generation: that of a classic group; None: it is of KIP-848.
        instances: the instance ids of its members, by their ids.
    """

    ts_ms: int
    limit: int
    generation: int | None
    instances: dict[str, str | None]


class _Group:
    """Who is in a group, as far as its records were read, and whom of those who are it turned away.

    Attributes:
        sizes: how large it was, in the order of time.
        states: from when on it was in which state, in the order of time.
        oversizes: when it was too large.
        put_out: who was turned away as a member.
        left_out: who of those isn't a member by the next record any more.
        shut_out: who was turned away though its instance was a member.
    """

    def __init__(self, turned_away: Iterable[TurnedAway]) -> None:
        """Makes a group that nobody is in; ``turned_away``: whom it turns away, in the order of time."""
        self.sizes: list[_Size] = []
        self.states: list[tuple[int, str]] = []
        self.oversizes: list[_Oversize] = []
        self.put_out: set[TurnedAway] = set()
        self.left_out: set[TurnedAway] = set()
        self.shut_out: set[TurnedAway] = set()
        self._to_come = deque(turned_away)
        self._instances: dict[str, str | None] = {}
        self._members: dict[str, str] = {}

    def read(self, ts_ms: int, limit: int, member_id: str | None, value: Mapping[str, Any] | None) -> None:
        """Takes a record in: that of a member of KIP-848, or, without a member id, that of a classic group."""
        members = self.turn_away(ts_ms)
        if member_id is None:
            self._instances, self._members = {}, {}
            for member in () if value is None else value["members"]:
                self._add(member["memberId"], member["groupInstanceId"])
        else:
            instance_id = self._instances.pop(member_id, None)
            if instance_id is not None and self._members[instance_id] == member_id:
                del self._members[instance_id]
            if value is not None:
                self._add(member_id, value["instanceId"])
        self.left_out |= {one for one in members if one.member_id not in self._instances}
        self.sizes.append(_Size(ts_ms, limit, len(self._instances)))
        if len(self._instances) > limit:
            generation = None if member_id is not None or value is None else value["generation"]
            self.oversizes.append(_Oversize(ts_ms, limit, generation, dict(self._instances)))

    def _add(self, member_id: str, instance_id: str | None) -> None:
        self._instances[member_id] = instance_id
        if instance_id is not None:
            self._members[instance_id] = member_id

    def turn_away(self, ts_ms: int) -> set[TurnedAway]:
        """Looks who those are that are turned away up to a time: before the records of that time, whatever they say.

        Returns those who are members.
        """
        members = set()
        while self._to_come and self._to_come[0].ts_ms <= ts_ms:
            one = self._to_come.popleft()
            if one.member_id in self._instances:
                members.add(one)
            elif one.instance_id in self._members:
                self.shut_out.add(one)
        self.put_out |= members
        return members

    def may_have_been(self, states: Collection[str], ts_ms: int) -> bool:
        """Tells whether it may have been in one of some states in a moment: before it or in it."""
        first = bisect_left(self.states, ts_ms, key=itemgetter(0))
        after = bisect_right(self.states, ts_ms, key=itemgetter(0))
        return any(state in states for _, state in self.states[max(first - 1, 0) : after])

    def may_have_been_full(self, ts_ms: int, limit: int) -> bool:
        """Tells whether it may have been full in a moment: before it, in it, or with who was about to join.

        Args:
            limit: how many members a group of the protocol of the one who asks may have: it would become one.
        """
        first = bisect_left(self.sizes, ts_ms, key=lambda one: one.ts_ms)
        after = bisect_right(self.sizes, ts_ms, key=lambda one: one.ts_ms) + self.may_have_been(_UNWRITTEN, ts_ms)
        return any(size.is_full_for(limit) for size in self.sizes[max(first - 1, 0) : after])


class FullGroups:
    """Which groups were full when, in a world in which groups have a greatest size."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._groups = _read_groups(history) if history.limits_sizes or history.turned_away else {}
        self._times_ms: dict[str, list[int]] = defaultdict(list)
        for one in history.turned_away:
            group = self._groups.get(one.group_id)
            if group is not None and group.may_have_been_full(one.ts_ms, self._limit_for(one.process)):
                self._times_ms[one.process].append(one.ts_ms)

    def _limit_for(self, process: str) -> int:
        is_kip_848 = process in self._history.kip_848
        return self._history.consumer_max_size if is_kip_848 else NO_LIMIT

    def turned_away_ms(self, process: str, since_ms: int, until_ms: int) -> int | None:
        """Returns when a process was last turned away from its group in a span of time, for that was full; or None."""
        times_ms = self._times_ms[process]
        last = bisect_right(times_ms, until_ms) - 1
        return times_ms[last] if last >= 0 and times_ms[last] >= since_ms else None

    def _has_no_place(self, group_id: str, process: str, turned_away_ms: int) -> bool:
        """Tells whether a process that was turned away, and has not come in since, finds its group full at the end."""
        group = self._groups.get(group_id)
        if group is None or not group.sizes[-1].is_full_for(self._limit_for(process)):
            return False
        return not any(
            one.process == process and one.number > 0 and one.ts_ms > turned_away_ms
            for one in self._history.memberships
        )

    def without_place(self) -> set[str]:
        """Returns the processes that wait at the end, were turned away, and find no place, whether they try or not."""
        return {
            one.process
            for one in self._history.waiting
            if (at_ms := self.turned_away_ms(one.process, one.since_ms, self._history.end_ms)) is not None
            and self._has_no_place(one.group_id, one.process, at_ms)
        }

    def violations(self) -> Iterator[Violation]:
        """Yields the groups that grew too large, and who was turned away that shouldn't have been: each once."""
        for group_id, group in self._groups.items():
            for one in group.oversizes:
                detail = f"the group has {len(one.instances)} members, expected {one.limit} at most"
                yield Violation(one.ts_ms, group_id, self._kind_of(one), detail)
        told: set[tuple[str, str]] = set()
        for refused in self._history.turned_away:
            wrong = self._wrong_with(refused)
            if wrong is not None and (refused.process, wrong) not in told:
                told.add((refused.process, wrong))
                yield Violation(refused.ts_ms, refused.group_id, wrong, f"{refused.process} {_WHAT[wrong]}")

    def _kind_of(self, oversize: _Oversize) -> str:
        """Returns whether a group is too large for the static members that haven't joined in its generation."""
        joined = {
            one.member_id
            for one in self._history.memberships
            if one.number == oversize.generation and one.is_stable and one.member_id in oversize.instances
        }
        away = sum(
            instance_id is not None and member_id not in joined for member_id, instance_id in oversize.instances.items()
        )
        is_own = oversize.generation is not None and len(oversize.instances) - away <= oversize.limit
        return OVER_FULL if is_own else "too many members"

    def _wrong_with(self, refused: TurnedAway) -> str | None:
        """Returns the kind of what is wrong with turning somebody away; None if nothing is."""
        group = self._groups.get(refused.group_id)
        if group is None:
            return _TURNED_AWAY
        if not group.may_have_been_full(refused.ts_ms, self._limit_for(refused.process)):
            return None if group.may_have_been(_UNWRITTEN, refused.ts_ms) else _TURNED_AWAY
        if refused in group.put_out:
            if group.may_have_been(_WAITS_FOR_JOINS, refused.ts_ms):
                return PUT_OUT
            # Whoever isn't in a generation that has formed, and isn't written yet, is no member any more.
            is_over = refused in group.left_out and group.may_have_been(_UNWRITTEN, refused.ts_ms)
            return None if is_over else _TURNED_AWAY
        return NO_WAY_BACK if refused in group.shut_out else None


def _read_groups(history: History) -> dict[str, _Group]:
    """Returns who was in each group that has records."""
    turned_away: dict[str, list[TurnedAway]] = defaultdict(list)
    for one in history.turned_away:
        turned_away[one.group_id].append(one)
    limits = {"GroupMetadata": history.classic_max_size, "ConsumerGroupMemberMetadata": history.consumer_max_size}
    groups: dict[str, _Group] = {}
    states: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for ts_ms, group_id, record_type, member_id, value in history.records(limits):
        group = groups.get(group_id)
        if group is None:
            group = groups[group_id] = _Group(turned_away[group_id])
        group.read(ts_ms, limits[record_type], member_id, value)
    for row in history.transitions():
        states[row[_TRANSITION["group_id"]]].append((row[_TRANSITION["ts"]], row[_TRANSITION["to_state"]]))
    for group_id, group in groups.items():
        group.states = states[group_id]
        group.turn_away(history.end_ms)
    return groups
