"""Why a broker's request log itself can't tell what is right at a difference. Such differences are counted by reason.

A log doesn't tell what was there before it began, nor what was still waiting when it ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Final

from coordinator_udf.protocol.errors import Errors, error_codes
from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.replay.inputs.broker_log.facts import waited_until_loss
from coordinator_udf.replay.inputs.broker_log.hangs import hangs_of
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.moments import Silence
from coordinator_udf.replay.inputs.broker_log.older import DESCRIBE, OlderThings
from coordinator_udf.replay.inputs.broker_log.rebalances_at_end import RebalancesAtEnd
from coordinator_udf.replay.inputs.broker_log.topics import TopicHistory
from coordinator_udf.replay.judge.canonical import canonical_answer
from coordinator_udf.replay.judge.compare import Difference, answer_error, groups_of
from schemas.replay_differences import OLDER, REBASED

__all__ = ["ENDED", "OLDER", "REBASED", "LogFacts"]

ENDED: Final = "a rebalance that was still going on when the log ended; who joined is not in the log"

_NEVER_US: Final = 2**63
_US: Final = 1_000
#: In this time no group comes to be anew and is at a generation again that one has that was there before.
_SOON_US: Final = 1_000_000
#: The APIs whose answers list groups, or a group's offsets.
_ASK_GROUPS: Final = frozenset(
    {"ListGroups", "DescribeGroups", "ConsumerGroupDescribe", "DeleteGroups", "OffsetFetch", "OffsetDelete"}
)
#: What a description tells of a member of the classic protocol as it joined, and what it was assigned then.
_OF_JOINS: Final = ("memberMetadata", "clientId", "clientHost")
_OF_SYNCS: Final = ("memberAssignment",)
#: What is answered to members that the coordinator knows only.
_OF_KNOWN_MEMBERS: Final = frozenset(
    {
        Errors.NONE,
        Errors.REBALANCE_IN_PROGRESS,
        Errors.ILLEGAL_GENERATION,
        Errors.FENCED_INSTANCE_ID,
        Errors.FENCED_MEMBER_EPOCH,
        Errors.STALE_MEMBER_EPOCH,
    }
)
#: Errors that tell of a group's members and generations, and which of them an API gives, whatever the group is.
_OF_MEMBERS: Final = frozenset(
    {
        Errors.ILLEGAL_GENERATION,
        Errors.UNKNOWN_MEMBER_ID,
        Errors.REBALANCE_IN_PROGRESS,
        Errors.MEMBER_ID_REQUIRED,
        Errors.FENCED_INSTANCE_ID,
        Errors.FENCED_MEMBER_EPOCH,
        Errors.UNRELEASED_INSTANCE_ID,
        Errors.STALE_MEMBER_EPOCH,
    }
)
_OF_CLASSIC: Final = frozenset(
    {
        Errors.ILLEGAL_GENERATION,
        Errors.UNKNOWN_MEMBER_ID,
        Errors.REBALANCE_IN_PROGRESS,
        Errors.FENCED_INSTANCE_ID,
    }
)
_GIVEN_BY: Final[dict[str, frozenset[Errors]]] = {
    "Heartbeat": _OF_CLASSIC,
    "SyncGroup": _OF_CLASSIC,
    "JoinGroup": _OF_CLASSIC | {Errors.MEMBER_ID_REQUIRED},
    "LeaveGroup": frozenset({Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID}),
    "OffsetCommit": _OF_CLASSIC | {Errors.STALE_MEMBER_EPOCH},
    "TxnOffsetCommit": _OF_CLASSIC | {Errors.STALE_MEMBER_EPOCH},
    "OffsetFetch": frozenset({Errors.UNKNOWN_MEMBER_ID, Errors.STALE_MEMBER_EPOCH}),
    "ConsumerGroupHeartbeat": frozenset(
        {
            Errors.UNKNOWN_MEMBER_ID,
            Errors.FENCED_INSTANCE_ID,
            Errors.FENCED_MEMBER_EPOCH,
            Errors.UNRELEASED_INSTANCE_ID,
        }
    ),
}
#: What is answered by a broker that isn't the group's, or not yet, changes nothing in the group.
_AWAY: Final = frozenset({Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS})
#: APIs whose errors say nothing but the error.
_BARE_ERRORS: Final = frozenset({"JoinGroup", "SyncGroup", "Heartbeat"})


def _may_be_given(difference: Difference) -> bool:
    """Returns whether a broker could answer so at all: no error of another API, nothing besides an error."""
    recorded, ours = difference.recorded["body"], difference.ours["body"]
    if any(code in _OF_MEMBERS and code not in _GIVEN_BY.get(difference.api, ()) for code in error_codes(recorded)):
        return False
    is_same = answer_error(recorded) == answer_error(ours) != Errors.NONE
    return not (is_same and difference.api in _BARE_ERRORS)


class LogFacts:
    """What a log tells that its rows don't carry."""

    def __init__(
        self,
        entries: Sequence[Entry],
        request_ids: Mapping[int, str],
        partitions: int,
        losses: Mapping[int, Sequence[int]],
        topics: TopicHistory,
        *,
        ends_ms: int,
        longest_wait_ms: int,
    ) -> None:
        """Goes through the log once.

        Args:
            entries: the log in order.
            request_ids: by entry number.
            partitions: the number of shards.
            losses: by shard, when the broker had lost it (ms).
            topics: which there were when.
            ends_ms: when the log's last answer was ready, of whatever shard.
            longest_wait_ms: the longest that any of the log's members asked to be waited for.
        """
        self._at_end = RebalancesAtEnd(partitions, losses, ends_ms=ends_ms, longest_wait_ms=longest_wait_ms)
        self.deleted_topics = topics.deleted
        #: By request id.
        self.entries = {request_ids[entry.number]: entry for entry in entries if entry.number in request_ids}
        self._partitions = partitions
        self._losses = losses
        self._members: set[str] = set()
        self._groups: dict[str, int] = {}
        self._committed: dict[tuple[str, str], int] = {}
        #: By group and member, when it was first told a generation, and an assignment (us).
        self._joined: dict[tuple[str, str], int] = {}
        self._synced: dict[tuple[str, str], int] = {}
        self._older = OlderThings(topics.names)
        for entry in entries:
            self._note(entry)

    @property
    def ends_us(self) -> int:
        """When the log ended, in microseconds."""
        return self._at_end.ends_us

    @cached_property
    def hangs(self) -> list[Silence]:
        """When the broker hung, in order."""
        return hangs_of(self.entries.values())

    def with_entries(self, entries: Mapping[str, Entry]) -> LogFacts:
        """Returns the facts with lines, by request id, that the log doesn't have and that say nothing of the rest."""
        other = copy(self)
        other.entries = {**self.entries, **entries}
        return other

    def undecided(self, difference: Difference, *, once_searched: bool = True) -> str | None:
        """Returns why the log can't decide a difference between two answers; None where it can.

        Args:
            once_searched: whether there is nothing more to try: of a rebalance that was still going on when the log
                ended its answers may tell who joined.
        """
        entry = self.entries.get(difference.request_id or "")
        if entry is None or difference.recorded is None:
            return None
        named = self.differing_groups(difference)
        if difference.ours is None:
            told = once_searched and self._at_end.may_wait(entry, difference)
            return ENDED if told and any(self._at_end.has_ended(group, entry, difference) for group in named) else None
        if not _may_be_given(difference):
            return None
        if self._is_older(entry, difference):
            return OLDER
        if once_searched and any(self._at_end.has_ended(group, entry, difference) for group in named):
            return ENDED
        return None

    def differing_groups(self, difference: Difference) -> list[str]:
        """Returns the group that was asked about; of several those that both answers differ in."""
        entry = self.entries.get(difference.request_id or "")
        group_id = None if entry is None else entry.request.get("groupId")
        if isinstance(group_id, str):
            return [group_id]
        sides = [groups_of(side) for side in (difference.recorded, difference.ours)]
        return [group for group in {**sides[0], **sides[1]} if sides[0].get(group) != sides[1].get(group)]

    def knows(self, entry: Entry, group_id: str) -> bool:
        """Returns whether the log has told of a group before an entry."""
        since = self._groups.get(group_id)
        return since is not None and since <= entry.log_ts

    def has_begun(self, group_id: str) -> bool:
        """Returns whether a group got its first members in the log."""
        return self._older.has_begun(group_id)

    def cut_groups(self) -> frozenset[str]:
        """Returns the groups that joined a generation as the log ended, before all had their line."""
        return self._at_end.cut_groups()

    def was_lost(self, group_id: str, since_ms: int, until_ms: int) -> bool:
        """Returns whether the broker lost the group's shard in a time."""
        losses = self._losses.get(partition_for(group_id, self._partitions), ())
        return any(since_ms <= lost <= until_ms for lost in losses)

    def _note(self, entry: Entry) -> None:
        request, answer = entry.request, entry.response or {}
        self._older.note(entry)
        self._at_end.note(entry)
        group_id = request.get("groupId")
        if not isinstance(group_id, str):
            return
        error = answer_error(answer)
        if entry.api in {"JoinGroup", "ConsumerGroupHeartbeat"} and error not in _AWAY:
            self._groups.setdefault(group_id, entry.log_ts)
            is_new = not request.get("memberId") or request.get("memberEpoch") == 0
            if is_new and answer.get("memberId") and error in {Errors.NONE, Errors.MEMBER_ID_REQUIRED}:
                self._members.add(answer["memberId"])
            if entry.api == "JoinGroup" and error == Errors.NONE:
                self._joined.setdefault((group_id, str(answer.get("memberId"))), entry.answered_us)
        if entry.api == "SyncGroup" and error == Errors.NONE:
            self._synced.setdefault((group_id, str(request.get("memberId"))), entry.answered_us)
        if entry.api in {"OffsetCommit", "TxnOffsetCommit"}:
            self._groups.setdefault(group_id, entry.log_ts)
            for topic in request.get("topics") or ():
                name = topic.get("name") or topic.get("topicId")
                self._committed.setdefault((group_id, str(name)), entry.log_ts)

    def _is_older(self, entry: Entry, difference: Difference) -> bool:
        """Returns whether both answers agree but for what was there before; or the member is older than the log."""
        member_id = entry.request.get("memberId")
        members = [member_id] if member_id else [m.get("memberId") for m in entry.request.get("members") or ()]
        group_id = entry.request.get("groupId")
        comes = entry.api == "ConsumerGroupHeartbeat" and entry.request.get("memberEpoch") == 0
        unknown = [member for member in members if member and member not in self._members and not comes]
        if unknown and isinstance(group_id, str):
            may_be = any(self._older.may_have_member(group_id, member) for member in unknown)
            may_be = may_be and not self._is_outlier(group_id, entry)
            error = answer_error(difference.recorded["body"])
            return may_be and (error in _OF_KNOWN_MEMBERS or waited_until_loss(entry, error))
        if isinstance(group_id, str) and group_id not in self._groups and entry.api != "OffsetFetch":
            return self._older.may_have_group(group_id)
        if entry.api not in _ASK_GROUPS:
            return False
        if entry.api == "OffsetFetch":
            return self._older.may_have_offsets(entry, difference)
        left, right = (self._without_older(entry, side["body"]) for side in (difference.recorded, difference.ours))
        return bool(left == right)

    def _is_outlier(self, group_id: str, entry: Entry) -> bool:
        """Returns whether a member was told a higher generation than others at the same time, or soon after it."""
        if entry.api != "JoinGroup":
            return False
        told = (entry.response or {}).get("generationId", -1)
        last_us = entry.answered_us + _SOON_US
        return any(
            entry.answered_us - _US <= at_us <= last_us and g < told for at_us, g in self._at_end.generations[group_id]
        )

    def _without_older(self, entry: Entry, body: Mapping[str, Any]) -> Any:
        """Returns an answer without what is older than the log: groups of which it has said nothing so far, and more.

        That is what members came with to a classic group of which the log has neither this nor a later join.
        """
        canonical = canonical_answer(entry.api, body, of_many_shards=True)
        cut: dict[str, Any] = dict(canonical)
        told = (entry.response or {}).get("groups") or ()
        new = {group.get("groupId") for group in told if entry.api in DESCRIBE and self._tells_of_new(entry, group)}
        for field in ("groups", "results"):
            if field in cut:
                cut[field] = [group for group in cut[field] if group["groupId"] not in new and self._has(entry, group)]
        if entry.api == "DescribeGroups":
            cut["groups"] = [self._without_older_joins(entry, group) for group in cut["groups"]]
        return cut

    def _tells_of_new(self, entry: Entry, group: Mapping[str, Any]) -> bool:
        """Returns whether a description tells of a member that came before the log and that nothing told of before."""
        older = [each for each in group.get("members") or () if each.get("memberId") not in self._members]
        return self._older.has_new_to_log(entry, {**group, "members": older})

    def _without_older_joins(self, entry: Entry, group: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a described group; of members that are older than the log without what they joined with then."""
        members = []
        for member in group.get("members") or ():
            place = (str(group["groupId"]), str(member.get("memberId")))
            unknown: tuple[str, ...] = ()
            if place[1] not in self._members and self._older.may_have_member(*place):
                unknown += _OF_JOINS if self._joined.get(place, _NEVER_US) > entry.arrived_us else ()
                unknown += _OF_SYNCS if self._synced.get(place, _NEVER_US) > entry.arrived_us else ()
            members.append({name: value for name, value in member.items() if name not in unknown})
        return {**group, "members": members}

    def _has(self, entry: Entry, group: Mapping[str, Any]) -> bool:
        return self.knows(entry, group["groupId"])
