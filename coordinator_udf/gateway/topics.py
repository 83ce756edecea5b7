"""The topics that exist as far as the gateway and its clients are concerned."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_udf.protocol.requests import Topic


class TopicCatalog:
    """Topics by name and by id; immutable, a change makes another one."""

    def __init__(self, topics: Iterable[Topic]) -> None:
        self.topics = tuple(sorted(topics, key=lambda topic: topic.name))
        self._by_name = {topic.name: topic for topic in self.topics}
        self._by_id = {topic.id: topic for topic in self.topics}
        if len(self._by_name) < len(self.topics) or len(self._by_id) < len(self.topics):
            raise ValueError("topics: a name or an id is there twice; give each topic one entry")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicCatalog) and self.topics == other.topics

    def __hash__(self) -> int:
        return hash(self.topics)

    def named(self, name: str | None) -> Topic | None:
        """Returns the topic of that name."""
        return self._by_name.get(name or "")

    def with_id(self, topic_id: str) -> Topic | None:
        """Returns the topic with that id (Kafka's url-safe base64)."""
        return self._by_id.get(topic_id)
