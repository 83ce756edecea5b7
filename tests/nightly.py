"""How much is tried of what has no end: some of it by ``scripts/test``, many times that by ``scripts/test nightly``.

And what the night alone tries: one more place (cluster, storage, server), or kill, for what is shown by day elsewhere.
"""

from __future__ import annotations

import os
from typing import Final, TypeVar

import pytest

_T = TypeVar("_T")

#: Set by ``scripts/test nightly``.
NIGHTLY: Final = os.environ.get("MUSTER_NIGHTLY") == "1"


def some_or_many(some: _T, many: _T) -> _T:
    """The first, or the second in the night."""
    return many if NIGHTLY else some


def only_at_night(by_day: str) -> pytest.MarkDecorator:
    """Marks what is run by ``scripts/test nightly`` alone; given is which test shows the like by day."""
    return pytest.mark.skipif(not NIGHTLY, reason=f"scripts/test nightly runs it; by day: {by_day}")
