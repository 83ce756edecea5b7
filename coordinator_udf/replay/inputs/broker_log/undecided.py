"""Why a broker's request log itself can't tell what is right at a difference. Such differences are counted by reason.

A log doesn't tell what was there before it began, what a broker had in memory when it stopped, nor what was still
waiting when the log ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.older import OlderThings
from coordinator_udf.replay.inputs.broker_log.topics import TopicHistory
from coordinator_udf.replay.judge.canonical import canonical_answer
from coordinator_udf.replay.judge.compare import Difference, answer_error
from schemas.replay_differences import OLDER, REBASED

__all__ = ["ENDED", "LOST", "OLDER", "REBASED", "LogFacts"]

LOST: Final = "the broker had lost and loaded the shard; what waited and what it loaded is not in the log"
ENDED: Final = "a rebalance that was still going on when the log ended; who joined is not in the log"

#: The APIs whose answers list groups, or a group's offsets.
_ASK_GROUPS: Final = frozenset(
    {"ListGroups", "DescribeGroups", "ConsumerGroupDescribe", "DeleteGroups", "OffsetFetch", "OffsetDelete"}
)
_MEMBERS_ASK: Final = frozenset({"Heartbeat", "JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat"})
#: The APIs whose answers tell what state a group is in.
_TELL_STATES: Final = frozenset({"ListGroups", "DescribeGroups", "ConsumerGroupDescribe"})
_OF_CLASSIC: Final = frozenset(
    {Errors.NONE, Errors.REBALANCE_IN_PROGRESS, Errors.ILLEGAL_GENERATION, Errors.FENCED_INSTANCE_ID}
)
_OF_EPOCHS: Final = frozenset({Errors.FENCED_MEMBER_EPOCH, Errors.STALE_MEMBER_EPOCH})
#: What is answered to members that the coordinator knows only, by API; nothing else can be of a member older than the
#: log.
_OF_KNOWN_MEMBERS: Final = {
    "Heartbeat": _OF_CLASSIC,
    "JoinGroup": _OF_CLASSIC,
    "SyncGroup": _OF_CLASSIC,
    "LeaveGroup": frozenset({Errors.NONE, Errors.FENCED_INSTANCE_ID}),
    "ConsumerGroupHeartbeat": _OF_EPOCHS | {Errors.NONE, Errors.FENCED_INSTANCE_ID},
}
_OF_ANY: Final = _OF_CLASSIC | _OF_EPOCHS


class LogFacts:
    """What a log tells that its rows don't carry."""

    def __init__(
        self,
        entries: Sequence[Entry],
        request_ids: Mapping[int, str],
        partitions: int,
        losses: Mapping[int, Sequence[int]],
        topics: TopicHistory,
    ) -> None:
        """Goes through the log once.

        Args:
            entries: the log in order.
            request_ids: by entry number.
            partitions: the number of shards.
            losses: by shard, when the broker had lost it (ms).
            topics: which there were when.
        """
        self.deleted_topics = topics.deleted
        #: By request id.
        self.entries = {request_ids[entry.number]: entry for entry in entries if entry.number in request_ids}
        self._partitions = partitions
        self._losses = losses
        self._members: set[str] = set()
        self._groups: dict[str, int] = {}
        self._committed: dict[tuple[str, str], int] = {}
        self._last_join: dict[str, int] = {}
        #: When a member last asked that was told that all is well.
        self._calm: dict[str, int] = {}
        self._older = OlderThings(topics.names)
        for entry in entries:
            self._note(entry)

    def undecided(self, difference: Difference) -> str | None:
        """Why the log can't decide a difference between two answers; None where it can."""
        entry = self.entries.get(difference.request_id or "")
        if entry is None or difference.recorded is None or difference.ours is None:
            return None
        group_id = entry.request.get("groupId")
        named = [group_id] if isinstance(group_id, str) else self._named(entry, difference)
        if any(self._is_lost(group, entry) for group in named):
            return LOST
        if self._is_older(entry, difference):
            return OLDER
        if any(self._has_ended(group, entry, difference) for group in named):
            return ENDED
        return None

    def knows(self, entry: Entry, group_id: str) -> bool:
        """Whether the log has told of a group before an entry."""
        since = self._groups.get(group_id)
        return since is not None and since <= entry.log_ts

    def was_lost(self, group_id: str, since_ms: int, until_ms: int) -> bool:
        """Whether the broker lost the group's shard in a time."""
        losses = self._losses.get(partition_for(group_id, self._partitions), ())
        return any(since_ms <= lost <= until_ms for lost in losses)

    def _note(self, entry: Entry) -> None:
        request, answer = entry.request, entry.response or {}
        self._older.note(entry)
        group_id = request.get("groupId")
        if not isinstance(group_id, str):
            return
        error = answer_error(answer)
        if entry.api in {"JoinGroup", "ConsumerGroupHeartbeat"}:
            self._groups.setdefault(group_id, entry.log_ts)
            is_new = not request.get("memberId") or request.get("memberEpoch") == 0
            if is_new and answer.get("memberId") and error in {Errors.NONE, Errors.MEMBER_ID_REQUIRED}:
                self._members.add(answer["memberId"])
            if entry.api == "JoinGroup" and error == Errors.NONE:
                self._last_join[group_id] = max(self._last_join.get(group_id, 0), entry.answered_us)
        if entry.api == "Heartbeat" and error == Errors.NONE:
            self._calm[group_id] = max(self._calm.get(group_id, 0), entry.arrived_us)
        if entry.api in {"OffsetCommit", "TxnOffsetCommit"}:
            self._groups.setdefault(group_id, entry.log_ts)
            for topic in request.get("topics") or ():
                name = topic.get("name") or topic.get("topicId")
                self._committed.setdefault((group_id, str(name)), entry.log_ts)

    def _named(self, entry: Entry, difference: Difference) -> list[str]:
        """The groups that one of both answers differs in."""
        sides = [_groups_of(side) for side in (difference.recorded, difference.ours)]
        return [group for group in {**sides[0], **sides[1]} if sides[0].get(group) != sides[1].get(group)]

    def _is_lost(self, group_id: str, entry: Entry) -> bool:
        """Whether the group was there when the broker lost its shard, before this request."""
        first = self._groups.get(group_id, entry.log_ts)
        losses = self._losses.get(partition_for(group_id, self._partitions), ())
        return any(first < lost <= entry.log_ts for lost in losses)

    def _is_older(self, entry: Entry, difference: Difference) -> bool:
        """Whether both answers agree but for what was there before; or the member is older than the log."""
        member_id = entry.request.get("memberId")
        members = [member_id] if member_id else [m.get("memberId") for m in entry.request.get("members") or ()]
        group_id = entry.request.get("groupId")
        comes = entry.api == "ConsumerGroupHeartbeat" and entry.request.get("memberEpoch") == 0
        unknown = [member for member in members if member and member not in self._members and not comes]
        if unknown and isinstance(group_id, str):
            may_be = any(self._older.may_have_member(group_id, member) for member in unknown)
            return may_be and answer_error(difference.recorded["body"]) in _OF_KNOWN_MEMBERS.get(entry.api, _OF_ANY)
        if isinstance(group_id, str) and group_id not in self._groups and entry.api != "OffsetFetch":
            return self._older.may_have_group(group_id)
        if entry.api not in _ASK_GROUPS:
            return False
        if entry.api == "OffsetFetch":
            return self._older.may_have_offsets(entry, difference)
        left, right = (self._without_older(entry, side["body"]) for side in (difference.recorded, difference.ours))
        return bool(left == right)

    def _without_older(self, entry: Entry, body: Mapping[str, Any]) -> Any:
        """An answer without the groups that the log has said nothing about so far."""
        canonical = canonical_answer(entry.api, body, of_many_shards=True)
        cut: dict[str, Any] = dict(canonical)
        for field in ("groups", "results"):
            if field in cut:
                cut[field] = [group for group in cut[field] if self._has(entry, group)]
        return cut

    def _has(self, entry: Entry, group: Mapping[str, Any]) -> bool:
        return self.knows(entry, group["groupId"])

    def _has_ended(self, group_id: str, entry: Entry, difference: Difference) -> bool:
        """A rebalance of which no member's answer is in the log any more."""
        if entry.api in _TELL_STATES:
            told = _groups_of(difference.recorded).values()
            going_on = any(
                group.get("groupState") == "PreparingRebalance" and not group.get("errorCode") for group in told
            )
        else:
            # Only a classic group waits for members, and then everybody may commit.
            may_wait = group_id in self._last_join and entry.api in _MEMBERS_ASK
            going_on = may_wait and difference.error == Errors.REBALANCE_IN_PROGRESS.name
        if self._calm.get(group_id, 0) > entry.answered_us:
            return False
        return going_on and self._last_join.get(group_id, 0) < entry.arrived_us


def _groups_of(side: Any) -> dict[str, dict[str, Any]]:
    body = side.get("body", {}) if isinstance(side, Mapping) else {}
    return {str(group.get("groupId")): group for group in [*(body.get("groups") or ()), *(body.get("results") or ())]}
