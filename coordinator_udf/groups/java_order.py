"""The order in which Java walks a HashMap of strings.

Kafka leaves a few choices to it: which member leads when the leader is gone, which protocol wins a tied vote, which
of two timers with one deadline was armed first. Walking our members in that order makes the same choices.
Source: java.util.HashMap (hash spreading, power-of-two tables, load factor 0.75, order kept on resize).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from coordinator_udf.protocol.partitioner import java_hash

INITIAL_TABLE = 16


@lru_cache(maxsize=262_144)
def _spread(key: str) -> int:
    value = java_hash(key) & 0xFFFFFFFF
    return value ^ (value >> 16)


def grown_table(table: int, entries: int) -> int:
    """The table's size after it held ``entries`` entries. It never shrinks."""
    while entries > table * 3 // 4:
        table *= 2
    return table


def hash_order(keys: Iterable[str], table: int = INITIAL_TABLE) -> list[str]:
    """The keys, given in the order of their insertion, in the order in which a HashMap with that table has them."""
    mask = table - 1
    return sorted(keys, key=lambda key: _spread(key) & mask)
