"""What members have and shall have in the order in which Kafka's coordinator walks it, and compared without any order.

The state has topics and partitions in the order of the records; Kafka puts them into hash maps when it reads those.
"""

from __future__ import annotations

from coordinator_udf.java_order.tables import INITIAL_TABLE, grown_table, int_order, uuid_order

#: Topic id -> partition -> the epoch in which the member was given it; in the order of the record, as `Target`.
Assigned = dict[str, dict[int, int]]
#: Topic id -> partitions, in the order in which the record that made it has them.
Target = dict[str, tuple[int, ...]]


def target_in_kafka_order(target: Target) -> Target:
    """Returns a target of the group's state in the order in which Kafka walks it (Assignment.fromRecord)."""
    return {topic_id: tuple(int_order(target[topic_id])) for topic_id in uuid_order(target)}


def assigned_in_kafka_order(assigned: Assigned) -> Assigned:
    """Returns a member's partitions in the order in which Kafka walks them (Utils.assignmentFromTopicPartitions)."""
    return {
        topic_id: {
            partition: assigned[topic_id][partition]
            for partition in int_order(assigned[topic_id], grown_table(INITIAL_TABLE, len(assigned[topic_id])))
        }
        for topic_id in uuid_order(assigned)
    }


def is_same_target(target: Target, other: Target | None) -> bool:
    """Returns whether two targets have the same partitions, in whatever order."""
    if other is None or target.keys() != other.keys():
        return False
    return all(
        partitions == other[topic_id] or set(partitions) == set(other[topic_id])
        for topic_id, partitions in target.items()
    )
