from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.protocol.requests import Topic
from tests.groups.coordinators import KafkasCoordinator, OurCoordinator
from tests.groups.harness import TOPICS, World

#: Kafka's settings in the scenarios where none are given.
SETTINGS = {"group.initial.rebalance.delay.ms": 3_000, "group.min.session.timeout.ms": 6_000}

Worlds = Callable[..., World]


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkasCoordinator | None]:
    """Kafka's own coordinator, if the environment says where its line server is."""
    jar = os.environ.get("MUSTER_ORACLE")
    if not jar:
        yield None
        return
    kafka = KafkasCoordinator(Path(jar))
    yield kafka
    kafka.close()


@pytest.fixture
def worlds(kafka: KafkasCoordinator | None) -> Worlds:
    """Makes a world with settings of one's own, by Kafka's names."""

    def make(settings: dict[str, Any] | None = None, topics: list[Topic] | None = None) -> World:
        values = {**SETTINGS, **(settings or {})}
        if kafka is not None:
            kafka.start(values, topics or TOPICS)
            return World(kafka, kafka.records)
        ours = OurCoordinator(values, topics or TOPICS)
        return World(ours, ours.records)

    return make


@pytest.fixture
def ours() -> World:
    """Ours in any case: for what Kafka's line server can't be asked."""
    coordinator = OurCoordinator(SETTINGS, TOPICS)
    return World(coordinator, coordinator.records)


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds()
