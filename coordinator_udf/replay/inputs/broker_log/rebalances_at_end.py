"""Rebalances that were still going on when a broker's log ended: who waits has no line, and what tells of it is open.

The log of a shard ends where its broker lost it, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.replay.inputs.broker_log.cut_rebalances import CutRebalances, tells_of_more_members
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.judge.compare import Difference, answer_error, groups_of

_NEVER_US: Final = 2**63
_US: Final = 1_000
#: So long members are waited for by default (max.poll.interval.ms).
_USUAL_WAIT_MS: Final = 300_000
#: The APIs that tell a member of a rebalance that others began.
_TELL_OF_OTHERS: Final = frozenset({"Heartbeat", "SyncGroup"})
#: Those whose answers come when others have done something.
_WAIT_FOR_OTHERS: Final = _TELL_OF_OTHERS | {"JoinGroup"}
#: What is answered where a shard isn't there: whoever doesn't wait is told nothing else.
_OF_SHARDS: Final = frozenset(
    {Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR}
)
#: The APIs whose answers tell what state a group is in.
_TELL_STATES: Final = frozenset({"ListGroups", "DescribeGroups", "ConsumerGroupDescribe"})


class RebalancesAtEnd:
    """What a log tells of rebalances that it doesn't have the end of.

    Attributes:
        ends_us: when it ended (us).
        generations: those that answers to a JoinGroup told, by group, each with when it did (us).
    """

    def __init__(
        self, partitions: int, losses: Mapping[int, Sequence[int]], *, ends_ms: int, longest_wait_ms: int
    ) -> None:
        """Begins before the log's first line.

        Args:
            partitions: the number of shards.
            losses: by shard, when the broker had lost it (ms).
            ends_ms: when the log's last answer was ready, of whatever shard.
            longest_wait_ms: the longest that any of the log's members asked to be waited for.
        """
        self.ends_us = (ends_ms + 1) * _US
        self._longest_wait_us = max(longest_wait_ms, _USUAL_WAIT_MS) * _US
        self._partitions = partitions
        self._losses = losses
        self.generations: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        #: By group, when a member asked that was told that all is well (us).
        self._calm: defaultdict[str, list[int]] = defaultdict(list)
        self._cut = CutRebalances()
        #: By group and member, when its group was too full for it first (us).
        self._turned_away: dict[tuple[str, str], int] = {}
        #: By group, when a member of KIP-848 was first told that it is in it (us).
        self._of_consumers: dict[str, int] = {}

    def note(self, entry: Entry) -> None:
        """Takes notice of a line."""
        request, answer = entry.request, entry.response or {}
        if entry.api == "DeleteGroups":
            # Nobody waited in a group that could be deleted.
            for result in answer.get("results") or ():
                if result.get("errorCode") == Errors.NONE:
                    self._calm[str(result.get("groupId"))].append(entry.arrived_us)
        group_id = request.get("groupId")
        if not isinstance(group_id, str):
            return
        error = answer_error(answer)
        self._cut.note(group_id, entry)
        if entry.api == "ConsumerGroupHeartbeat" and entry.response is not None and error == Errors.NONE:
            self._of_consumers.setdefault(group_id, entry.answered_us)
        if entry.api == "JoinGroup" and error == Errors.NONE:
            self.generations[group_id].append((entry.answered_us, answer.get("generationId", -1)))
        if entry.api == "JoinGroup" and error == Errors.GROUP_MAX_SIZE_REACHED and request.get("memberId"):
            self._turned_away.setdefault((group_id, str(request["memberId"])), entry.answered_us)
        if entry.api == "Heartbeat" and error == Errors.NONE:
            self._calm[group_id].append(entry.arrived_us)

    def cut_groups(self) -> frozenset[str]:
        """Returns the groups that joined a generation as the log ended, before all had their line."""
        return frozenset(self._cut.groups(self.ends_us))

    def may_wait(self, entry: Entry, difference: Difference) -> bool:
        """Returns whether who waits in ours may have been answered for what others did of whom there is no line.

        They began a rebalance, and nobody answered them any more, or took its place.
        """
        return entry.api in _WAIT_FOR_OTHERS or _is_replaced(entry, difference)

    def has_ended(self, group_id: str, entry: Entry, difference: Difference) -> bool:
        """Returns whether it is of a rebalance of which no member's answer is in the log any more, or not all are."""
        # The log of a shard ends where the broker lost it.
        losses = self._losses.get(partition_for(group_id, self._partitions), ())
        ends_us = min((lost * _US for lost in losses if lost >= entry.log_ts), default=self.ends_us)
        body = None if difference.ours is None else difference.ours["body"]
        if self._cut.is_cut(group_id, entry, body, ends_us):
            return True
        if entry.api in _TELL_STATES:
            told = groups_of(difference.recorded).values()
            going_on = any(
                group.get("groupState") == "PreparingRebalance" and not group.get("errorCode") for group in told
            )
        else:
            # Only a classic group waits for members, and then everybody may commit.
            may_wait = group_id in self.generations and entry.api in _TELL_OF_OTHERS
            ours = Errors.NONE if body is None else answer_error(body)
            if entry.api == "Heartbeat" and ours in _OF_SHARDS:
                return False
            going_on = may_wait and difference.error == Errors.REBALANCE_IN_PROGRESS.name
            going_on = going_on or _is_replaced(entry, difference)
            if body is not None and self._may_lack_joins(group_id, entry, ends_us):
                going_on = going_on or tells_of_more_members(entry.api, difference.recorded["body"], body, group_id)
                going_on = going_on or self._was_turned_away(group_id, entry)
        if not going_on:
            return False
        # Who joins once more while others are yet to sync is told the generation that there is.
        asked = entry.request.get("generationId", -1)
        return not any(entry.answered_us < beat_us < ends_us for beat_us in self._calm[group_id]) and not any(
            entry.arrived_us <= joined_us < ends_us
            and generation != asked
            and not self._cut.lacks_joins(group_id, generation, ends_us)
            for joined_us, generation in self.generations[group_id]
        )

    def _was_turned_away(self, group_id: str, entry: Entry) -> bool:
        """Returns whether a request is told that its member is none, which was put out of a group that was full."""
        at_us = self._turned_away.get((group_id, str(entry.request.get("memberId"))), _NEVER_US)
        return at_us <= entry.arrived_us and answer_error(entry.response or {}) == Errors.UNKNOWN_MEMBER_ID

    def _may_lack_joins(self, group_id: str, entry: Entry, ends_us: int) -> bool:
        """Returns whether somebody may have waited in a classic group from a request to the log's end."""
        of_consumers_us = self._of_consumers.get(group_id, _NEVER_US)
        return ends_us - entry.answered_us <= self._longest_wait_us and of_consumers_us > entry.answered_us


def _is_replaced(entry: Entry, difference: Difference) -> bool:
    """Returns whether a static member that waits in ours was told that another one came by its instance id.

    Source: GroupMetadataManager.replaceStaticMember.
    """
    is_static = entry.api in {"JoinGroup", "SyncGroup"} and bool(entry.request.get("groupInstanceId"))
    if not is_static or difference.error != Errors.FENCED_INSTANCE_ID.name:
        return False
    if difference.ours is None:
        return True
    late_ms: int = difference.ours.get("ts", 0) - difference.recorded.get("ts", 0)
    # A shard is taken to be lost with its last answer, and who waits is told so.
    return late_ms > 0 or (late_ms == 0 and answer_error(difference.ours["body"]) in _OF_SHARDS)
