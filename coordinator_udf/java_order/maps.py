"""Hash maps that keep the order that Java's have, while they are changed.

What Kafka's coordinator works out in hash maps it writes and later reads again in their order, and that order decides
which partitions an assignor takes from a member that has too many. Source: java.util.HashMap (a new entry is the last
of its bin with put and the first with computeIfAbsent and merge; bins keep their order when the table grows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from coordinator_udf.java_order.tables import (
    INITIAL_TABLE,
    grown_table,
    int_spread,
    set_table,
    sized_table,
    table_for,
    uuid_spread,
)

K = TypeVar("K")
V = TypeVar("V")


class JavaMap(Generic[K, V]):
    """A HashMap. ``entries`` has those of a bin in the bin's order; `walk` brings the bins in order."""

    def __init__(self, spread: Callable[[K], int], table: int = INITIAL_TABLE) -> None:
        """Makes an empty map with a table of that size."""
        self.entries: dict[K, V] = {}
        self._spread = spread
        self._table = table

    def put(self, key: K, value: V) -> None:
        """Adds an entry, or gives another value to the one that there is."""
        is_new = key not in self.entries
        self.entries[key] = value
        if is_new:
            self._table = grown_table(self._table, len(self.entries))

    def put_all(self, other: Mapping[K, V]) -> None:
        """Adds all entries of another map, for which there is room made first."""
        self._table = grown_table(self._table, len(other))
        for key, value in other.items():
            self.put(key, value)

    def get_or_put_first(self, key: K, value: V) -> V:
        """Returns the value of an entry; if it isn't there it is added before all of its bin (computeIfAbsent).

        The table grows if it was too small before, also where nothing is added; not after.
        """
        if len(self.entries) > self._table * 3 // 4:
            self._table *= 2
        if key not in self.entries:
            self.entries = {key: value, **self.entries}
        return self.entries[key]

    def walk(self) -> dict[K, V]:
        """Returns the entries in the map's order."""
        mask = self._table - 1
        return {key: self.entries[key] for key in sorted(self.entries, key=lambda key: self._spread(key) & mask)}


def by_topic(table: int = INITIAL_TABLE) -> JavaMap[str, V]:
    """Returns an empty map whose keys are topic ids."""
    return JavaMap(uuid_spread, table)


def by_partition(table: int = INITIAL_TABLE) -> JavaMap[int, V]:
    """Returns an empty map whose keys are partitions."""
    return JavaMap(int_spread, table)


def copied_topics(known: Mapping[str, V]) -> JavaMap[str, V]:
    """Returns a copy of a map of topic ids, given in its order."""
    copy: JavaMap[str, V] = by_topic(table_for(len(known)))
    copy.entries = dict(known)
    return copy


def copied_partitions(known: Mapping[int, V]) -> JavaMap[int, V]:
    """Returns a copy of a map of partitions, given in its order."""
    copy: JavaMap[int, V] = by_partition(table_for(len(known)))
    copy.entries = dict(known)
    return copy


class PartitionSets:
    """A map of topic ids to sets of partitions that an assignor changes."""

    def __init__(self, known: Mapping[str, Iterable[int]] | None = None) -> None:
        """Makes a map, or a copy of one that is given in its order (AssignorHelpers.deepCopyAssignment)."""
        self._topics: JavaMap[str, JavaMap[int, None]] = by_topic(
            INITIAL_TABLE if known is None else sized_table(len(known))
        )
        if known is None:
            return
        for topic_id, partitions in known.items():
            kept = dict.fromkeys(partitions)
            copy: JavaMap[int, None] = by_partition(set_table(len(kept)))
            copy.entries = kept
            self._topics.put(topic_id, copy)

    def add(self, topic_id: str, partition: int, table: int = INITIAL_TABLE) -> None:
        """Adds a partition; if it is the topic's first one, to a set with a table of that size."""
        self._topics.get_or_put_first(topic_id, by_partition(table)).put(partition, None)

    def discard(self, topic_id: str, partition: int) -> None:
        """Removes a partition, and with the last one the topic."""
        partitions = self._topics.entries[topic_id].entries
        partitions.pop(partition, None)
        if not partitions:
            self.drop(topic_id)

    def drop(self, topic_id: str) -> None:
        """Removes a topic."""
        self._topics.entries.pop(topic_id, None)

    def walk(self) -> dict[str, tuple[int, ...]]:
        """Returns the map in its order, the sets in theirs."""
        return {topic_id: tuple(partitions.walk()) for topic_id, partitions in self._topics.walk().items()}
