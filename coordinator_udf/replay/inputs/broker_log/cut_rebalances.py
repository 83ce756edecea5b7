"""Rebalances of whose answers a log has some only, for it ended while they were being written.

A broker writes a line when it has sent the answer. The members of a group are answered at once, so where a log was cut
off, or its broker killed, it may lack the lines of those who joined, and that of the leader with what it assigned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from coordinator_udf.protocol.errors import Errors, error_codes
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.judge.compare import answer_error

#: What a JoinGroup is told for those who are in the group.
_REFUSED_FOR_OTHERS: Final = frozenset({Errors.GROUP_MAX_SIZE_REACHED, Errors.INCONSISTENT_GROUP_PROTOCOL})
#: So long after an answer was ready its line is in the log, in microseconds: as late as timers may be (explain.bounds).
WRITTEN_US: Final = 250_000


@dataclass
class _Generation:
    """What the log has of one generation of a group."""

    #: Whom the leader was told, once its line is there.
    listed: frozenset[str] | None = None
    leader: str | None = None
    answered: set[str] = field(default_factory=set)
    has_assignments: bool = False
    joined_us: int = 0


class CutRebalances:
    """Of each group's generations, those whose answers the log has in part."""

    def __init__(self) -> None:
        self._generations: defaultdict[str, dict[int, _Generation]] = defaultdict(dict)

    def note(self, group_id: str, entry: Entry) -> None:
        """Takes notice of a line."""
        answer = entry.response
        if answer is None or answer_error(answer) != Errors.NONE:
            return
        if entry.api == "JoinGroup":
            member_id = str(answer.get("memberId"))
            seen = self._generations[group_id].setdefault(answer.get("generationId", -1), _Generation())
            seen.leader = answer.get("leader")
            seen.answered.add(member_id)
            seen.joined_us = max(seen.joined_us, entry.answered_us)
            if answer.get("members"):
                seen.listed = frozenset(str(each.get("memberId")) for each in answer["members"])
        elif entry.api == "SyncGroup":
            found = self._generations[group_id].get(entry.request.get("generationId", -1))
            if found is not None:
                found.has_assignments |= bool(
                    entry.request.get("memberId") == found.leader or entry.request.get("assignments")
                )

    def is_cut(self, group_id: str, entry: Entry, ours: Mapping[str, Any] | None, ends_us: int) -> bool:
        """Returns whether others have no line of what answered a request, for the log was over before.

        Args:
            ours: our answer; None if it waits.
            ends_us: when the log ended, or what it has of the group's shard.
        """
        if entry.response is None or not ends_us - WRITTEN_US <= entry.answered_us <= ends_us:
            return False
        if entry.api == "JoinGroup":
            return answer_error(ours or {}) == Errors.NONE and self._is_cut_join(group_id, entry, ours, ends_us)
        if entry.api != "SyncGroup" or answer_error(entry.response) != Errors.NONE:
            return False
        generation = entry.request.get("generationId", -1)
        seen = self._generations[group_id].get(generation)
        if seen is None or seen.has_assignments or entry.request.get("memberId") not in seen.answered:
            return False
        # Where our members are yet to join, theirs asks for the assignment of a generation that isn't there.
        waits = {Errors.NONE, Errors.REBALANCE_IN_PROGRESS}
        if self.lacks_joins(group_id, generation, ends_us):
            waits |= {Errors.ILLEGAL_GENERATION, Errors.UNKNOWN_MEMBER_ID}
        return generation == max(self._generations[group_id]) and answer_error(ours or {}) in waits

    def _is_cut_join(self, group_id: str, entry: Entry, ours: Mapping[str, Any] | None, ends_us: int) -> bool:
        answer = entry.response or {}
        if answer.get("memberId") != (entry.request.get("memberId") or answer.get("memberId")):
            return False
        generation, error = answer.get("generationId", -1), answer_error(answer)
        if error == Errors.REBALANCE_IN_PROGRESS:
            # Who waited is told to join again when a member of KIP-848 makes the group one of its own.
            return generation == -1 and not answer.get("leader") and not answer.get("members")
        # Whoever joined, it is the next one.
        next_one = ours.get("generationId") if ours else self._following(group_id, generation)
        return error == Errors.NONE and generation == next_one and self.lacks_joins(group_id, generation, ends_us)

    def _following(self, group_id: str, generation: int) -> int:
        """Returns which generation follows the last one that the log has before one; that itself where it has none."""
        before = [number for number in self._generations[group_id] if number < generation]
        return max(before) + 1 if before else max(generation, 1)

    def groups(self, ends_us: int) -> Iterator[str]:
        """Yields the groups whose last generation lacks joins.

        Args:
            ends_us: when the log ended.
        """
        return (
            group_id
            for group_id, of_group in self._generations.items()
            if of_group and self.lacks_joins(group_id, max(of_group), ends_us)
        )

    def lacks_joins(self, group_id: str, generation: int, ends_us: int) -> bool:
        """Returns whether somebody has no line of having joined a generation, for the log was over before.

        Args:
            ends_us: when the log ended, or what it has of the group's shard.
        """
        of_group = self._generations[group_id]
        seen = of_group.get(generation)
        if seen is None or generation != max(of_group) or seen.joined_us < ends_us - WRITTEN_US:
            return False
        return seen.listed is None or not seen.listed <= seen.answered


def tells_of_more_members(api: str, recorded: Mapping[str, Any], ours: Mapping[str, Any], group_id: str) -> bool:
    """Returns whether a broker's answer says that a group has members of which ours knows nothing.

    Source: ClassicGroup.validateDeleteGroup, isSubscribedToTopic, GroupMetadataManager.acceptJoiningMember.
    """
    if api == "JoinGroup":
        refused = answer_error(recorded)
        return refused in _REFUSED_FOR_OTHERS and refused != answer_error(ours)
    if api == "DeleteGroups":
        told, our_own = (_result_of(body, group_id) for body in (recorded, ours))
        return told == Errors.NON_EMPTY_GROUP and our_own in {Errors.NONE, Errors.GROUP_ID_NOT_FOUND}
    if api == "OffsetDelete":
        subscribed = Errors.GROUP_SUBSCRIBED_TO_TOPIC
        return subscribed in error_codes(recorded) and subscribed not in error_codes(ours)
    return False


def _result_of(body: Mapping[str, Any], group_id: str) -> int | None:
    results = body.get("results") or ()
    return next((result.get("errorCode") for result in results if result.get("groupId") == group_id), None)
