"""Which partitions nobody has, as the sticky assignors find it (getUnassignedPartitions of both builders)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coordinator_udf.members.inputs import TopicPartition


def unassigned_of(everything: Iterable[TopicPartition], assigned: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Returns what isn't assigned; both are sorted alike.

    They are merged as Kafka merges them: an assigned partition that there no longer is, for its topic was made anew
    with fewer, stops the merge, and all that comes after it counts as unassigned.
    """
    rest: Iterator[TopicPartition] = iter(assigned)
    following = next(rest, None)
    unassigned: list[TopicPartition] = []
    for partition in everything:
        if partition == following:
            following = next(rest, None)
        else:
            unassigned.append(partition)
    return unassigned
