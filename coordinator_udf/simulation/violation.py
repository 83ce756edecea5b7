"""What a world's invariants find."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from coordinator_udf.members.inputs import TopicPartition


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be. ``ts_ms`` is in milliseconds since the epoch."""

    ts_ms: int
    group_id: str
    kind: str
    detail: str


class SeedViolation(msgspec.Struct, frozen=True):
    """A violation with the seed of its world."""

    seed: int
    kind: str
    group_id: str
    detail: str

    @classmethod
    def of(cls, seed: int, violation: Violation) -> SeedViolation:
        """Returns a violation with its world's seed."""
        return cls(seed, violation.kind, violation.group_id, violation.detail)


def named(partitions: Iterable[TopicPartition]) -> str:
    """Returns how partitions are called where a violation is told."""
    return ", ".join(f"{partition.topic}-{partition.partition}" for partition in sorted(partitions))
