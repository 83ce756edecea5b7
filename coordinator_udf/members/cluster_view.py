"""What a Metadata answer tells of a cluster: brokers, topics with ids and partitions, and the racks of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator_udf.protocol.errors import BadRequest


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic.

    Attributes:
        racks: for each partition the racks of its replicas; shorter than ``partitions`` where they are not known.
        is_internal: whether it is one of Kafka's own, as ``__consumer_offsets``.
    """

    name: str
    topic_id: str
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster as one answer shows it: the ids of its brokers, and its topics by name, in the answer's order."""

    brokers: tuple[int, ...] = ()
    topics: Mapping[str, TopicView] = field(default_factory=dict)

    def by_id(self) -> dict[str, TopicView]:
        """Returns the topics by their ids."""
        return {topic.topic_id: topic for topic in self.topics.values()}

    @classmethod
    def from_json(cls, view: Mapping[str, Any]) -> ClusterView:
        """Reads ``{"brokers": 3, "topics": [{"name", "id", "partitions", "racks"?, "internal"?}]}``, brokers from 0 on.

        Raises:
            BadRequest: a field is missing or of another type.
        """
        try:
            topics = [
                TopicView(
                    str(topic["name"]),
                    str(topic["id"]),
                    int(topic["partitions"]),
                    tuple(tuple(str(rack) for rack in racks) for racks in topic.get("racks", ())),
                    bool(topic.get("internal", False)),
                )
                for topic in view.get("topics", ())
            ]
            brokers = tuple(range(int(view.get("brokers", 1))))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadRequest("view", view, "brokers, and topics with name, id and partitions") from error
        return cls(brokers, {topic.name: topic for topic in topics})
