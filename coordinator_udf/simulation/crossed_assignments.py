"""Finds what KIP-848 members say of what they own while they are given more, which the coordinator misunderstands."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.history import History

#: A member says what it owned before in the moment in which it is given more. So long may that be under way, and wait
#: for a coordinator that answers once in a while, in milliseconds.
_UNDER_WAY_MS: Final = 2_000

#: A topic's id and a partition's number.
_Partition = tuple[str, int]


class CrossedAssignments:
    """The partitions that a coordinator took back from members at once, for they said that they hadn't got them.

    When a member has done as it was told, it says what it owns, and in the same moment does what it was told meanwhile.
    The coordinator takes what it says for the answer to that: where the next assignment lacks some of it, it doesn't
    wait until the member has given that up (CurrentAssignmentBuilder.ownsRevokedPartitions), and gives it to another.
    """

    def __init__(self, history: History) -> None:
        #: By a process and a partition of a topic's name: one that was made again has another id.
        self._taken_ms: dict[tuple[str, TopicPartition], list[int]] = defaultdict(list)
        before: dict[str, frozenset[_Partition]] = {}
        for record in history.records(("ConsumerGroupCurrentMemberAssignment",)):
            member_id, value = record.member_id or "", record.value
            if value is None:
                before.pop(member_id, None)
                continue
            assigned = _partitions(value["assignedPartitions"])
            taken = before.get(member_id, frozenset()) - assigned - _partitions(value["partitionsPendingRevocation"])
            before[member_id] = assigned
            process = history.process_of.get(member_id, member_id)
            for made, number in taken:
                self._taken_ms[process, TopicPartition(history.topic_names[made], number)].append(record.ts_ms)

    def took(self, process: str, partition: TopicPartition, given_ms: int, ts_ms: int) -> bool:
        """Tells whether a partition was taken back from a process in the moment in which it was given it.

        Args:
            given_ms: when its application was given it, in milliseconds since the epoch.
            ts_ms: by when; it still has it.
        """
        taken_ms = self._taken_ms.get((process, partition), ())
        # Before, where the member was yet to hear of it.
        return any(abs(at_ms - given_ms) <= _UNDER_WAY_MS and at_ms <= ts_ms for at_ms in taken_ms)


def _partitions(topics: list[dict[str, list[int]]]) -> frozenset[_Partition]:
    return frozenset((str(topic["topicId"]), number) for topic in topics for number in topic["partitions"])
