"""The order in which Java walks its hash tables.

Kafka leaves a few choices to it: which member leads when the leader is gone, which protocol wins a tied vote, which
of two timers with one deadline was armed first. Walking our members in that order makes the same choices.
A bin of eight and more, which Java turns into a tree, is not brought into a tree's order: ids that end with random
uuids don't meet in one.
Source: java.util.HashMap (hash spreading, power-of-two tables, load factor 0.75, order kept on resize).
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
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


def table_for(entries: int) -> int:
    """The table's size of a HashMap that is made as a copy of another with so many entries."""
    return 1 << (int(entries / 0.75 + 1) - 1).bit_length() if entries else INITIAL_TABLE


def set_table(entries: int) -> int:
    """The table's size of a HashSet that is made of so many different entries."""
    return max(INITIAL_TABLE, table_for(entries))


def hash_order(keys: Iterable[str], table: int = INITIAL_TABLE) -> list[str]:
    """The keys, given in the order of their insertion, in the order in which a HashMap with that table has them."""
    return list(_hash_order(tuple(keys), table))


# A rebalance walks the same members half a dozen times. Few are kept, for each may be thousands of ids.
@lru_cache(maxsize=64)
def _hash_order(known: tuple[str, ...], table: int) -> tuple[str, ...]:
    mask = table - 1
    places = [_spread(key) & mask for key in known]
    return tuple(known[i] for i in sorted(range(len(known)), key=places.__getitem__))


@lru_cache(maxsize=65_536)
def _uuid_spread(topic_id: str) -> int:
    data = urlsafe_b64decode(topic_id + "==")
    both = int.from_bytes(data[:8]) ^ int.from_bytes(data[8:])
    value = (both >> 32) ^ (both & 0xFFFFFFFF)
    return value ^ (value >> 16)


def uuid_order(topic_ids: Iterable[str], table: int = INITIAL_TABLE) -> list[str]:
    """Topic ids, in the order of their insertion, in the order in which a HashMap with that table has them."""
    mask = table - 1
    return sorted(topic_ids, key=lambda topic_id: _uuid_spread(topic_id) & mask)


def int_order(numbers: Iterable[int]) -> list[int]:
    """Different numbers of at least 0 in the order in which a HashSet that was made of all of them has them."""
    known = list(numbers)
    mask = set_table(len(known)) - 1
    return sorted(known, key=lambda number: (number ^ (number >> 16)) & mask)


#: The size of a TimelineHashMap's table before anything is in it.
INITIAL_TIMELINE_TABLE = 2
_FIBONACCI = -7_046_029_254_386_353_131
_MASK64 = 2**64 - 1


def grown_timeline_table(table: int, entries: int) -> int:
    """The size of a TimelineHashMap's table after it held ``entries`` entries."""
    while entries * 3 > table * 4:
        table *= 2
    return table


def timeline_order(keys: Iterable[str], table: int) -> list[str]:
    """The keys, in the order of their insertion, in the order in which Kafka's TimelineHashMap walks them.

    A slot is the highest bits of a multiplied hash, and a slot's entries are walked from the last to the first
    (BaseHashTable.findSlot, SnapshottableHashTable.CurrentIterator).
    """
    shift = 65 - table.bit_length()
    known = list(keys)
    known.reverse()
    return sorted(known, key=lambda key: ((_signed_hash(key) * _FIBONACCI) & _MASK64) >> shift)


def _signed_hash(key: str) -> int:
    value = java_hash(key) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def java_string_key(text: str) -> bytes:
    """What Java compares two strings by: their UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
