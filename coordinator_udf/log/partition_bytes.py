"""Rows of one partition as bytes: how the embedded log holds them, and how they travel to their shard, unopened.

The bytes are record batches of REQUEST_LOG as an Arrow stream has them, without the schema in front, which everybody
knows and which is longer than a few heartbeats. So bytes of the same partition may simply be joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from schemas.requests import request_log_arrow

_SCHEMA: Final = request_log_arrow()
# Without threads: handing a few kilobytes to other threads costs more than packing them, 0.2 ms a value.
_WRITE: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_WRITE_FEW: Final = pa.ipc.IpcWriteOptions(use_threads=False)
_READ: Final = pa.ipc.IpcReadOptions(use_threads=False)
_HEAD: Final[bytes] = _SCHEMA.serialize().to_pybytes()
#: From how many rows on bytes are compressed, each column on its own. Measured with heartbeats (CPU time, five times,
#: within a tenth): compressed or not, 8 rows are 2.9 kB, 16 are 3.3 or 4.4, 32 are 4.1 or 7.4; compressed they take 13
#: us more to write and 10 to read. So with half as many time is lost and nothing gained; with twice as many 16 to 31
#: rows, as many as a quiet gateway appends at once, lie and travel a third longer.
_COMPRESSED_ROWS: Final = 16

#: How an Arrow stream ends.
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"

#: What the bytes stand on: the names and types of the log's columns.
COLUMNS: Final = ", ".join(f"{field.name} {field.type}" for field in _SCHEMA)


def gathered_batches(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Gathers record batches, in order, until they have at least so many rows; no rows at all give nothing."""
    gathered: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        gathered.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield gathered
            gathered, count = [], 0
    if count:
        yield gathered


def to_bytes(rows: pa.RecordBatch) -> bytes:
    """Returns rows of the request log as bytes."""
    sink = pa.BufferOutputStream()
    options = _WRITE if rows.num_rows >= _COMPRESSED_ROWS else _WRITE_FEW
    with pa.ipc.new_stream(sink, _SCHEMA, options=options) as writer:
        writer.write_batch(rows)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream[len(_HEAD) : -len(_END)]


def from_bytes(values: Iterable[bytes]) -> pa.Table:
    """Returns the rows in bytes, in the order in which they are given."""
    with pa.ipc.open_stream(b"".join((_HEAD, *values, _END)), options=_READ) as reader:
        return reader.read_all()


def by_partition(rows: pa.RecordBatch, partition: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the rows of each partition, in their order.

    Args:
        partition: of each row.
    """
    if np.any(partition[1:] < partition[:-1]):
        order = np.argsort(partition, kind="stable")
        rows, partition = rows.take(pa.array(order)), partition[order]
    numbers, starts = np.unique(partition, return_index=True)
    stops = [*starts[1:].tolist(), len(partition)]
    for number, start, stop in zip(numbers.tolist(), starts.tolist(), stops, strict=True):
        yield number, rows.slice(start, stop - start)
