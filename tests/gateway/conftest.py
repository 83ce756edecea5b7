"""A gateway for a test to coordinate; its settings come by indirect parametrisation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.alone import Alone


@pytest.fixture
def alone(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Alone]:
    made = Alone(tmp_path, **getattr(request, "param", {}))
    yield made
    made.gateway.stop()
    made.log.close()
