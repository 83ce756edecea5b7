"""Which topics exist: those of the settings file, and those that clients created, which the log keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator_udf.protocol.requests import Topic


def known_topics(configured: Iterable[Topic], created: Iterable[Topic]) -> tuple[Topic, ...]:
    """Returns all topics, by name. Of one that both name, the settings file's counts."""
    by_name = {topic.name: topic for topic in (*created, *configured)}
    return tuple(by_name[name] for name in sorted(by_name))


def metadata_body(topics: Iterable[Topic]) -> dict[str, list[dict[str, Any]]]:
    """Returns the body of a TopicMetadata row of the log; racks stand there where a topic has any."""
    return {"topics": [_entry(topic) for topic in topics]}


def _entry(topic: Topic) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": topic.name, "partitions": topic.partitions, "id": topic.id}
    return {**entry, "racks": topic.racks} if topic.racks else entry
