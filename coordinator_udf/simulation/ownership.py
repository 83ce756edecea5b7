"""Who owns which partitions, by what members' applications were told."""

from __future__ import annotations

from collections import defaultdict

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.history import ApplicationEvent


class Owners:
    """The owners of a group's partitions: processes that were told so and have neither heard otherwise nor ended."""

    def __init__(self) -> None:
        self._owners: dict[TopicPartition, set[str]] = defaultdict(set)

    def take(self, event: ApplicationEvent) -> None:
        """Takes note of an event of the group, in the order of events."""
        if event.event == "assigned":
            for partition in event.partitions:
                self._owners[partition].add(event.process)
        elif event.event == "revoked":
            for partition in event.partitions:
                self._owners[partition].discard(event.process)
        elif event.event in {"lost", "crash", "closed"}:
            # A member that has lost its partitions reads none any more, whichever it was told of.
            for of_partition in self._owners.values():
                of_partition.discard(event.process)

    def owned_by(self, process: str) -> set[TopicPartition]:
        """Returns what a process owns."""
        return {partition for partition, owners in self._owners.items() if process in owners}

    def of(self, partition: TopicPartition) -> set[str]:
        """Returns a partition's owners."""
        return self._owners[partition]
