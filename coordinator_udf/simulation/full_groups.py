"""What the greatest size of a group promises: no group has more members, and only a full one turns anybody away.

Three things that Kafka's coordinator does all the same have kinds of their own.

Who is a member is taken from what the coordinator wrote to its log. Of a classic group that is written when a
generation has been formed; who waits for the next one stands nowhere, though these count, too, so of a classic group
isn't told that it turned somebody away who had a place.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from coordinator_udf.groups.decisions import COLUMNS
from coordinator_udf.simulation.history import History, TurnedAway
from coordinator_udf.simulation.violation import Violation

#: Static members that are away keep their places, and as many others have joined as may.
OVER_FULL = "over full"
#: A static member can't come back to its own place, for the group is full, itself among the members (KAFKA-20601).
NO_WAY_BACK = "no way back"
#: A member of a classic group is late to join again, and others have the places by then.
PUT_OUT = "put out"
_WHAT = {
    "turned away": "is turned away from a group that isn't full",
    NO_WAY_BACK: "is turned away from a full group that its instance is a member of",
    PUT_OUT: "was a member, and is turned away: its group is full before it has joined again",
}
_RECORD = {name: place for place, name in enumerate(COLUMNS["records"])}


class _Members(NamedTuple):
    """A group's members from a time on.

    Attributes:
        is_classic: whether the group is of the classic protocol.
        limit: how many it may have.
        instances: the instance ids of those that are static, by member id.
    """

    ts_ms: int
    is_classic: bool
    limit: int
    instances: dict[str, str | None]

    @property
    def is_full(self) -> bool:
        return len(self.instances) >= self.limit


class FullGroups:
    """Which groups were full when, in a world in which groups have a greatest size."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._members: dict[str, list[_Members]] = defaultdict(list)
        self._turned_away: dict[str, list[int]] = defaultdict(list)
        if history.limits_sizes:
            self._read_records()
            for one in history.turned_away:
                if any(members.is_full for members in self._about(one.group_id, one.ts_ms)):
                    self._turned_away[one.process].append(one.ts_ms)

    def _read_records(self) -> None:
        last: dict[str, _Members] = {}
        for said in self._history.decisions:
            for row in said.records:
                group_id, kind, body = (row[_RECORD[name]] for name in ("group_id", "record_type", "body"))
                if kind not in {"GroupMetadata", "ConsumerGroupMemberMetadata"}:
                    continue
                value = None if body is None else json.loads(body)
                if kind == "GroupMetadata":
                    told = () if value is None else value["members"]
                    instances = {member["memberId"]: member["groupInstanceId"] for member in told}
                    limit = self._history.classic_max_size
                else:
                    instances = dict(last[group_id].instances) if group_id in last else {}
                    member_id = row[_RECORD["member_id"]]
                    instances.pop(member_id, None)
                    if value is not None:
                        instances[member_id] = value["instanceId"]
                    limit = self._history.consumer_max_size
                last[group_id] = _Members(row[_RECORD["ts"]], kind == "GroupMetadata", limit, instances)
                self._members[group_id].append(last[group_id])

    def _about(self, group_id: str, ts_ms: int) -> list[_Members]:
        """Returns what a group's members may have been in a moment: before it, in it, and as its next record has it."""
        members = self._members[group_id]
        first = bisect_left(members, ts_ms, key=lambda one: one.ts_ms)
        after = bisect_right(members, ts_ms, key=lambda one: one.ts_ms)
        return members[max(first - 1, 0) : after + 1]

    def turned_away_ms(self, process: str, since_ms: int, until_ms: int) -> int | None:
        """Returns when a process was last turned away from its group in a span of time, for that was full; or None."""
        times_ms = self._turned_away[process]
        last = bisect_right(times_ms, until_ms) - 1
        return times_ms[last] if last >= 0 and times_ms[last] >= since_ms else None

    def is_full_at_end(self, group_id: str) -> bool:
        """Tells whether a group is full when its world ends."""
        members = self._members[group_id]
        return bool(members) and members[-1].is_full

    def violations(self) -> Iterator[Violation]:
        """Yields the groups that grew too large, and who was turned away though there was a place for it."""
        for group_id, members in self._members.items():
            for one in members:
                too_many = len(one.instances) - one.limit
                if too_many > 0:
                    static = sum(instance_id is not None for instance_id in one.instances.values())
                    kind = OVER_FULL if one.is_classic and too_many <= static else "too many members"
                    detail = f"the group has {len(one.instances)} members, expected {one.limit} at most"
                    yield Violation(one.ts_ms, group_id, kind, detail)
        known: set[tuple[str, str]] = set()
        for refused in self._history.turned_away:
            wrong = self._kind_of(refused)
            if wrong is not None and (refused.process, wrong) not in known:
                known.add((refused.process, wrong))
                yield Violation(refused.ts_ms, refused.group_id, wrong, f"{refused.process} {_WHAT[wrong]}")

    def _kind_of(self, refused: TurnedAway) -> str | None:
        """Returns what is wrong with turning somebody away, if anything is."""
        about = self._about(refused.group_id, refused.ts_ms)
        if not any(members.is_full or members.is_classic for members in about):
            return "turned away"
        before = about[0] if about else None
        if before is None:
            return None
        if before.is_classic and refused.member_id in before.instances:
            return PUT_OUT
        is_member = refused.instance_id is not None and refused.instance_id in before.instances.values()
        return NO_WAY_BACK if is_member else None
