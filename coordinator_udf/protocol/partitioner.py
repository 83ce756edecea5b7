"""Which shard a group belongs to: Kafka's partitioning of __consumer_offsets."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

#: Kafka's default of offsets.topic.num.partitions.
DEFAULT_PARTITIONS: Final = 50


@lru_cache(maxsize=262_144)
def java_hash(text: str) -> int:
    """Returns Java's String.hashCode: signed 32 bit, over UTF-16 code units."""
    value = 0
    if text.isascii():
        for byte in text.encode():
            value = (31 * value + byte) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            value = (31 * value + (units[i] << 8) + units[i + 1]) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_for(group_id: str, partitions: int) -> int:
    """Returns the partition that coordinates a group: ``abs(hash) % partitions``.

    As Kafka's Utils.abs, the one negative number without a positive counterpart counts as 0.
    """
    value = java_hash(group_id)
    return 0 if value == -0x8000_0000 else abs(value) % partitions
