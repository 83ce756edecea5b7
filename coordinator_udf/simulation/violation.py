"""What a world's invariants find."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be. ``ts_ms`` is in milliseconds since the epoch."""

    ts_ms: int
    group_id: str
    kind: str
    detail: str
