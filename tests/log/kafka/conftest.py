"""One real broker for the tests of a log that is a topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.members.kafka_broker import KafkaBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("broker"), {"other": 1}, {}) as started:
        yield started
