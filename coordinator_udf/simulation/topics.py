"""The topics of a world, which only grow."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_udf.members.cluster_view import ClusterView, TopicView
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.simulation.coordinator import BROKERS
from coordinator_udf.simulation.events import topic_id


class Topics:
    """The topics that there are."""

    def __init__(self) -> None:
        self._topics: dict[str, Topic] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def grow(self, name: str, partitions: int) -> None:
        """Gives a topic so many partitions; makes it, if there is none of the name."""
        known = self._topics.get(name)
        self._topics[name] = Topic(name, partitions, topic_id(name) if known is None else known.id)

    def names(self) -> dict[str, str]:
        """Returns the topics' names by their ids."""
        return {topic.id: topic.name for topic in self}

    def view(self) -> ClusterView:
        """Returns what a broker tells members of the cluster."""
        topics = {topic.name: TopicView(topic.name, topic.id, topic.partitions) for topic in self}
        return ClusterView(tuple(range(BROKERS)), topics)
