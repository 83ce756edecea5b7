"""Whether the coordinator has the offsets that it took: when it takes them, when they are read, when it comes back."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.agenda import Agenda
from coordinator_udf.simulation.coordinator import SimulatedCoordinator
from coordinator_udf.simulation.history import Commit, History
from coordinator_udf.simulation.topics import Topics


class KeptCommits:
    """The commits that a world's coordinator took last, one of each group's partitions.

    To look only when a world ends would miss those that are lost and followed by others, which are higher.
    """

    def __init__(
        self,
        *,
        agenda: Agenda,
        coordinator: SimulatedCoordinator,
        topics: Topics,
        history: History,
    ) -> None:
        """Makes one that has taken none."""
        self._agenda = agenda
        self._coordinator = coordinator
        self._topics = topics
        self._history = history
        self._taken: dict[tuple[str, TopicPartition], Commit] = {}

    def take(self, commits: Iterable[Commit]) -> None:
        """Takes note of commits that have just been taken, which an answer will acknowledge."""
        for commit in commits:
            self._taken[commit.group_id, commit.partition] = commit
            self.read(commit.group_id, commit.partition)

    def read(self, group_id: str, partition: TopicPartition) -> int | None:
        """Returns what is committed of a partition, 0 if nothing is; None while its group's shard doesn't work."""
        offset = self._coordinator.committed(group_id, partition)
        taken = self._taken.get((group_id, partition))
        if taken is not None and offset is not None and offset < taken.offset:
            del self._taken[group_id, partition]
            if self._agenda.now_ms - taken.ts_ms >= self._history.retention_ms:
                # Whoever has the partition next begins anew.
                self._history.commits.pop((group_id, partition), None)
            elif self._is_of_same_topic(taken):
                self._history.lost.append(taken)
        return offset

    def look(self) -> None:
        """Looks for all of them."""
        for group_id, partition in list(self._taken):
            self.read(group_id, partition)

    def _is_of_same_topic(self, commit: Commit) -> bool:
        """Tells whether a commit's topic is still there: with a topic, Kafka deletes what is committed of it."""
        topic = commit.partition.topic
        return topic in self._topics and not self._history.is_another(topic, commit.ts_ms, self._agenda.now_ms)
