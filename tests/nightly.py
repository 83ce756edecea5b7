"""How much is tried of what has no end: some of it by ``scripts/test``, many times that by ``scripts/test nightly``."""

from __future__ import annotations

import os
from typing import Final, TypeVar

_T = TypeVar("_T")

#: Set by ``scripts/test nightly``.
NIGHTLY: Final = os.environ.get("MUSTER_NIGHTLY") == "1"


def some_or_many(some: _T, many: _T) -> _T:
    """The first, or the second in the night."""
    return many if NIGHTLY else some
