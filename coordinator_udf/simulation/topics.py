"""The topics of a world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from coordinator_udf.members.cluster_view import ClusterView, TopicView
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.simulation.events import topic_id
from coordinator_udf.simulation.placed_shard import BROKERS


class Topics:
    """The topics that there are."""

    def __init__(self) -> None:
        self._topics: dict[str, Topic] = {}
        self._names: dict[str, str] = {}
        self._deleted: Counter[str] = Counter()

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def grow(self, name: str, partitions: int, known_id: str | None = None) -> None:
        """Gives a topic so many partitions; makes it, if there is none of the name, and deletes it, if it gets none.

        One that is made again after it was deleted has another id, as in Kafka, unless its id is said.
        """
        if not partitions:
            self._deleted[name] += self._topics.pop(name, None) is not None
            return
        before = self._deleted[name]
        made = known_id or topic_id(f"{name}\n{before}" if before else name)
        self._topics[name] = Topic(name, partitions, made)
        self._names[made] = name

    def replace(self, topics: Iterable[Topic]) -> None:
        """Says which topics there are; those of no other name are deleted."""
        self._topics = {topic.name: topic for topic in topics}
        self._names |= {topic.id: topic.name for topic in self}

    def names(self) -> Mapping[str, str]:
        """Returns the topics' names by their ids, with those of topics that are no more."""
        return self._names

    def view(self) -> ClusterView:
        """Returns what a broker tells members of the cluster."""
        topics = {topic.name: TopicView(topic.name, topic.id, topic.partitions, topic.racks) for topic in self}
        return ClusterView(tuple(range(BROKERS)), topics)
