"""Memory of connections that are gone is given back, also where they were still being closed when it was looked."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from coordinator_udf.gateway.server import garbage


class Circle:
    """Refers to itself, as what asyncio makes of a connection."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def thresholds() -> Iterator[None]:
    kept = gc.get_threshold()
    yield
    gc.set_threshold(*kept)


@pytest.mark.usefixtures("thresholds")
def test_what_was_being_closed_at_a_look_is_collected_by_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # asyncio.sleep(0) yields once, so each send is a look.
    monkeypatch.setattr(garbage, "_LOOK_S", 0)
    noted = garbage.Garbage()
    looks = noted.collect()
    looks.send(None)
    closing = [Circle() for _ in range(600)]
    left = weakref.WeakSet(closing)
    for _ in range(600):
        noted.note_gone()
    looks.send(None)
    assert len(left) == 600
    closing.clear()
    looks.send(None)
    assert not left
    looks.close()
