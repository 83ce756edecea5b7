"""Where partitions end as far as the gateway knows: at the highest offset that any group has committed.

The gateway has no records, but whoever asks for the end of a partition compares it with committed offsets: a lag must
not be negative, and a reset by so many records must not jump to the beginning.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.tables.queries import literal, query
from schemas.requests import LIVE

#: What is read of the records of consumer_offsets.
RECORD_COLUMNS = ["record_type", "topic", "topic_partition", "offset_commit"]

_HIGHEST = f"""
SELECT topic, topic_partition AS partition, offset_commit['topic_id'] AS topic_id,
       MAX(offset_commit['offset']) AS "end"
FROM rows
WHERE source = {literal(LIVE)} AND record_type = 'OffsetCommit' AND offset_commit['offset'] > 0
GROUP BY 1, 2, 3
"""


class PartitionEnds:
    """The highest committed offset of each partition. Any thread may add to it while others ask."""

    def __init__(self) -> None:
        # By topic, partition and topic id; the id is None where a commit didn't tell it.
        self._ends: dict[tuple[str, int, str | None], int] = {}

    def load(self, uri: str) -> None:
        """Adds all that was ever committed.

        Args:
            uri: the table consumer_offsets; one that isn't there yet holds nothing.

        Raises:
            DeltaError: it can't be read.
        """
        try:
            table = DeltaTable(uri)
        except TableNotFoundError:
            return
        for batch in query(table, _HIGHEST):
            self._add(*(batch.column(name) for name in ("topic", "partition", "topic_id", "end")))

    def add(self, records: pa.Table) -> None:
        """Adds new records of consumer_offsets."""
        commits = records.filter(pc.equal(records.column("record_type"), "OffsetCommit"))
        if len(commits):
            value = commits.column("offset_commit").combine_chunks()
            if isinstance(value, pa.ChunkedArray):
                value = value.chunk(0)
            self._add(
                commits.column("topic"),
                commits.column("topic_partition"),
                pc.struct_field(value, "topic_id"),
                pc.struct_field(value, "offset"),
            )

    def _add(self, topics: pa.Array, partitions: pa.Array, topic_ids: pa.Array, ends: pa.Array) -> None:
        columns = (column.to_pylist() for column in (topics, partitions, topic_ids, ends))
        for topic, partition, topic_id, end in zip(*columns, strict=True):
            key = (topic, partition, topic_id)
            # A tombstone has no offset.
            if end is not None and end > self._ends.get(key, 0):
                self._ends[key] = end

    def end(self, topic: Topic, partition: int) -> int:
        """Returns the end of a partition; 0 where nothing was committed."""
        named = self._ends.get((topic.name, partition, None), 0)
        return max(named, self._ends.get((topic.name, partition, topic.id), 0))
