"""Rows of one partition packed into a binary column, for the way through Spark.

Between Python and the JVM each column of each key costs Spark more than all of its rows do (pandas, a call a key), and
the log's rows have 18 columns. So rows travel as Arrow record batches in one binary column, a few a partition: a
micro-batch's cost then hardly depends on the number of columns, and the rows are never turned into pandas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from schemas.outputs import shard_output_arrow
from schemas.requests import request_log_arrow

#: Requests on their way to their shard.
PACKED_REQUESTS: Final = StructType(
    [StructField("partition", IntegerType(), False), StructField("requests", BinaryType(), False)]
)

#: What a shard says in a micro-batch, and what it had to do and holds then.
PACKED_OUTPUTS: Final = StructType(
    [
        StructField("partition", IntegerType(), False),
        StructField("requests", IntegerType(), False),
        StructField("groups", IntegerType(), False),
        StructField("outputs", BinaryType(), False),
    ]
)

#: The most rows in one packed value, so that a great backlog doesn't become one great value.
MAX_ROWS: Final = 50_000

_REQUESTS: Final = request_log_arrow()
_OUTPUTS: Final = shard_output_arrow()
_IPC: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_PACKED: Final = pa.schema([pa.field("partition", pa.int32(), False), pa.field("requests", pa.binary(), False)])


def pack_requests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Record batches of REQUEST_LOG, in order, to record batches of PACKED_REQUESTS.

    Rows of a partition keep their order; rows without a partition, which nobody can be asked for, go to partition 0.
    """
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= MAX_ROWS:
            yield _packed(pa.Table.from_batches(gathered, _REQUESTS))
            gathered, rows = [], 0
    if rows:
        yield _packed(pa.Table.from_batches(gathered, _REQUESTS))


def _packed(table: pa.Table) -> pa.RecordBatch:
    partition = np.asarray(pc.fill_null(table.column("partition"), 0).combine_chunks())
    order = np.argsort(partition, kind="stable")
    table = table.take(pa.array(order))
    numbers, starts = np.unique(partition[order], return_index=True)
    stops = [*starts[1:].tolist(), len(partition)]
    values = [_write(table.slice(start, stop - start)) for start, stop in zip(starts.tolist(), stops, strict=True)]
    return pa.record_batch([pa.array(numbers, pa.int32()), pa.array(values, pa.binary())], schema=_PACKED)


def unpack_requests(values: Iterable[bytes]) -> pa.Table:
    """The rows of one partition, ordered by offset."""
    table = pa.concat_tables([_read(value) for value in values])
    return table.sort_by("offset")


def pack_outputs(outputs: pa.Table) -> bytes:
    """Rows of SHARD_OUTPUT as one value of PACKED_OUTPUTS."""
    return _write(outputs)


def unpack_outputs(packed: pa.Table) -> pa.Table:
    """What all shards said in a micro-batch, the rows of a partition ordered by seq.

    Args:
        packed: the column of PACKED_OUTPUTS.
    """
    tables = [_read(value.as_buffer()) for value in packed.column("outputs")]
    table = pa.concat_tables(tables) if tables else _OUTPUTS.empty_table()
    # Sorting moves all columns; a batch of heartbeats is sorted already but for the order of its shards.
    partition, seq = (np.asarray(table.column(name)) for name in ("partition", "seq"))
    if np.any((np.diff(seq) < 0) & (np.diff(partition) == 0)):
        table = table.sort_by([("partition", "ascending"), ("seq", "ascending")])
    return table.combine_chunks()


def _write(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_IPC) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read(value: bytes | pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(value) as reader:
        return reader.read_all()
