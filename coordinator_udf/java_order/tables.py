"""The order in which Java walks its hash tables.

Kafka leaves a few choices to it: which member leads when the leader is gone, which protocol wins a tied vote, which
of two timers with one deadline was armed first. Walking our members in that order makes the same choices.
A bin of eight and more, which Java turns into a tree, is not brought into a tree's order: ids that end with random
uuids don't meet in one.
Source: java.util.HashMap (hash spreading, power-of-two tables, load factor 0.75, order kept on resize).
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Collection, Iterable
from functools import lru_cache

from coordinator_udf.protocol.partitioner import java_hash

#: HashMap.DEFAULT_INITIAL_CAPACITY.
INITIAL_TABLE = 16


@lru_cache(maxsize=262_144)
def _spread(key: str) -> int:
    value = java_hash(key) & 0xFFFFFFFF
    return value ^ (value >> 16)


def grown_table(table: int, entries: int) -> int:
    """Returns the table's size after it held ``entries`` entries. It never shrinks."""
    while entries > table * 3 // 4:
        table *= 2
    return table


def sized_table(capacity: int) -> int:
    """Returns the table's size of a HashMap that is made with an initial capacity."""
    return 1 << max(capacity - 1, 0).bit_length()


def table_for(entries: int) -> int:
    """Returns the table's size of a HashMap that is made as a copy of another with so many entries."""
    return sized_table(int(entries / 0.75 + 1)) if entries else INITIAL_TABLE


def set_table(entries: int) -> int:
    """Returns the table's size of a HashSet that is made of so many different entries."""
    return max(INITIAL_TABLE, table_for(entries))


def hash_order(keys: Iterable[str], table: int = INITIAL_TABLE) -> list[str]:
    """Returns keys, given in the order of insertion, in the order in which a HashMap with that table has them."""
    return list(_hash_order(tuple(keys), table))


# A rebalance walks the same members half a dozen times. Few are kept, for each may be thousands of ids.
@lru_cache(maxsize=64)
def _hash_order(known: tuple[str, ...], table: int) -> tuple[str, ...]:
    mask = table - 1
    places = [_spread(key) & mask for key in known]
    return tuple(known[i] for i in sorted(range(len(known)), key=places.__getitem__))


@lru_cache(maxsize=65_536)
def uuid_spread(topic_id: str) -> int:
    """Returns the hash of a topic id, as a HashMap spreads it."""
    data = urlsafe_b64decode(topic_id + "==")
    both = int.from_bytes(data[:8]) ^ int.from_bytes(data[8:])
    value = (both >> 32) ^ (both & 0xFFFFFFFF)
    return value ^ (value >> 16)


def int_spread(number: int) -> int:
    """Returns the hash of a number of at least 0, as a HashMap spreads it."""
    return number ^ (number >> 16)


def uuid_order(topic_ids: Collection[str], table: int | None = None) -> list[str]:
    """Sorts topic ids, given in the order of their insertion, into the order in which a HashMap has them.

    Args:
        table: the map's table; None if it grew from nothing.
    """
    mask = (table or grown_table(INITIAL_TABLE, len(topic_ids))) - 1
    return sorted(topic_ids, key=lambda topic_id: uuid_spread(topic_id) & mask)


def int_order(numbers: Collection[int], table: int | None = None) -> list[int]:
    """Sorts different numbers of at least 0, given as they were inserted, into the order in which a HashSet has them.

    Args:
        table: the set's table; None if it was made of all the numbers at once.
    """
    mask = (table or set_table(len(numbers))) - 1
    return sorted(numbers, key=lambda number: int_spread(number) & mask)


#: The size of a TimelineHashMap's table before anything is in it.
INITIAL_TIMELINE_TABLE = 2
#: The multiplier of Knuth's Fibonacci hashing, as in Kafka's BaseHashTable.findSlot.
_FIBONACCI = -7_046_029_254_386_353_131
_MASK64 = 2**64 - 1


def grown_timeline_table(table: int, entries: int) -> int:
    """Returns the size of a TimelineHashMap's table after it held ``entries`` entries."""
    while entries * 3 > table * 4:
        table *= 2
    return table


def timeline_order(keys: Iterable[str], table: int) -> list[str]:
    """Returns the keys, in the order of their insertion, in the order in which Kafka's TimelineHashMap walks them.

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
    """Returns what Java compares two strings by: their UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
