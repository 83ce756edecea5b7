"""Finds assignments in consumer_offsets, for answers that refer to records of earlier micro-batches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from coordinator_udf.tables.assignment_join import RecordAt, brought
from coordinator_udf.tables.queries import literal, query

#: How many bytes of assignments are kept in memory; what isn't kept is read from the table again. One of ten partitions
#: of a topic has some 70 bytes: these are some hundred thousand members'.
CACHE_BYTES: Final = 64 * 1024 * 1024


class StoredAssignments:
    """Looks assignments up by the record that holds them, with those of the latest records kept in memory.

    Args:
        table: gives consumer_offsets at its newest version.
        cache_bytes: the most bytes of assignments to keep.
    """

    def __init__(self, table: Callable[[], DeltaTable], cache_bytes: int = CACHE_BYTES) -> None:
        self._table = table
        self._cache_bytes = cache_bytes
        self._bytes = 0
        self._known: OrderedDict[RecordAt, dict[str, bytes]] = OrderedDict()

    def find(self, records: list[RecordAt]) -> Mapping[RecordAt, Mapping[str, bytes]]:
        """Returns the assignments in the given records; what is not in the table is left out."""
        found = {}
        for record in records:
            if record in self._known:
                self._known.move_to_end(record)
                found[record] = self._known[record]
        missing = [record for record in records if record not in found]
        if missing:
            read = self._read(missing)
            for record, members in read.items():
                self._keep(record, members)
            found.update(read)
        return found

    def remember(self, assignments: pa.Table) -> None:
        """Keeps what a batch brings (rows of ASSIGNMENTS), since later batches ask for the newest records most."""
        for record, members in brought(assignments).items():
            self._keep(record, members)

    def _keep(self, record: RecordAt, members: dict[str, bytes]) -> None:
        self._bytes += _size(members) - _size(self._known.pop(record, {}))
        self._known[record] = members
        while self._bytes > self._cache_bytes and self._known:
            _, dropped = self._known.popitem(last=False)
            self._bytes -= _size(dropped)

    def _read(self, records: list[RecordAt]) -> dict[RecordAt, dict[str, bytes]]:
        found: dict[RecordAt, dict[str, bytes]] = {}
        places: dict[tuple[str, int], list[int]] = {}
        for source, partition, offset in records:
            places.setdefault((source, partition), []).append(offset)
        wanted = " OR ".join(
            f'source = {literal(source)} AND partition = {partition} AND "offset" IN ({", ".join(map(str, offsets))})'
            for (source, partition), offsets in places.items()
        )
        # A file's least and greatest offsets tell which files need to be read.
        sql = f'SELECT source, partition, "offset", group_metadata FROM rows WHERE {wanted}'
        rows = query(self._table(), sql).read_all()
        for row in rows.to_pylist():
            if row["group_metadata"] is not None:
                members = row["group_metadata"]["members"] or ()
                found[row["source"], row["partition"], row["offset"]] = {
                    member["member_id"]: member["assignment"] or b"" for member in members
                }
        return found


def _size(members: Mapping[str, bytes]) -> int:
    return sum(len(member_id) + len(payload) + 64 for member_id, payload in members.items())
