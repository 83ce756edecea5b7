"""Rows of one partition packed into a binary column, for the way through Spark.

Between Python and the JVM each column of each key costs Spark more than all of its rows do (pandas, a call a key), and
the log's rows have 18 columns. So rows travel in one binary column (log.partition_bytes), a value or a few a partition:
a micro-batch's cost then hardly depends on the number of columns, and the rows are never turned into pandas.

What a shard says travels the same way, a value for the rows of each kind, and without the columns that say the same in
each row: answers to heartbeats differ in few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from coordinator_udf.log.partition_bytes import by_partition, from_bytes, gathered_batches, to_bytes
from coordinator_udf.streaming.shard_keys import shard_key
from coordinator_udf.tables.outputs import SCHEMAS, OutputRows, Outputs
from schemas.requests import request_log_arrow

#: Requests on their way to their shard, which is named by its key (shard_keys).
PACKED_REQUESTS: Final = StructType(
    [StructField("shard", LongType(), False), StructField("requests", BinaryType(), False)]
)

#: What a shard says in a micro-batch: a row or two for each kind of outputs (schemas.outputs.KINDS) that there is, and
#: one for its tally.
PACKED_OUTPUTS: Final = StructType(
    [
        StructField("partition", IntegerType(), False),
        StructField("kind", StringType(), False),
        StructField("packed", BinaryType(), False),
    ]
)

#: The kind of the row that has a `Tally`.
TALLY: Final = "tally"

#: The most rows in one packed value, so that a great backlog doesn't become one great value: half of the rows that a
#: micro-batch takes by default, all of which may be of one partition.
MAX_ROWS: Final = 50_000

_REQUESTS: Final = request_log_arrow()
# Without threads: handing a few kilobytes to other threads costs as much as packing them.
_IPC: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_IPC_READ: Final = pa.ipc.IpcReadOptions(use_threads=False)
_PACKED: Final = pa.schema([pa.field("shard", pa.int64(), False), pa.field("requests", pa.binary(), False)])


def pack_requests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turns record batches of REQUEST_LOG, in order, into record batches of PACKED_REQUESTS.

    Rows of a partition keep their order; rows without a partition, which nobody can be asked for, go to partition 0.
    """
    return map(_packed, gathered_batches(batches, MAX_ROWS))


def _packed(gathered: list[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.Table.from_batches(gathered, _REQUESTS).combine_chunks().to_batches()[0]
    partition = np.asarray(pc.fill_null(rows.column("partition"), 0))
    packed = [(shard_key(number), to_bytes(own)) for number, own in by_partition(rows, partition)]
    keys, values = zip(*packed, strict=True)
    return pa.record_batch([pa.array(keys, pa.int64()), pa.array(values, pa.binary())], schema=_PACKED)


def unpack_requests(values: Iterable[bytes]) -> pa.Table:
    """Returns the rows of one partition, ordered by offset."""
    table = from_bytes(values)
    offsets = np.asarray(table.column("offset")) if table.column("offset").null_count == 0 else None
    # Sorting moves all columns, and one source alone delivers in order.
    if offsets is not None and np.all(offsets[:-1] <= offsets[1:]):
        return table
    return table.sort_by("offset")


class Tally(msgspec.Struct, frozen=True):
    """What a shard had to do in a micro-batch, and what it holds then: requests and groups."""

    requests: int
    groups: int


class _Layout(msgspec.Struct, frozen=True):
    """What packed rows say beside their columns: the other fields of `OutputRows`."""

    rows: int
    same: dict[str, int | str | None]
    first_seq: int | None
    copies: dict[str, str]


_LAYOUT: Final = b"layout"
_encode: Final = msgspec.json.Encoder().encode
_read_layout: Final = msgspec.json.Decoder(_Layout).decode
read_tally: Final = msgspec.json.Decoder(Tally).decode


def pack_outputs(partition: int, tally: Tally, outputs: Iterable[OutputRows]) -> list[tuple[int, str, bytes]]:
    """Returns what a shard says as rows of PACKED_OUTPUTS."""
    return [(partition, TALLY, _encode(tally)), *((partition, rows.kind, _pack(rows)) for rows in outputs)]


def _pack(rows: OutputRows) -> bytes:
    layout = _Layout(rows.rows, dict(rows.same), rows.first_seq, dict(rows.copies))
    schema = SCHEMAS[rows.kind]
    fields = pa.schema([schema.field(name) for name in rows.columns], {_LAYOUT: _encode(layout)})
    return _write(pa.table(list(rows.columns.values()), schema=fields))


def unpack_outputs(packed: pa.Table) -> tuple[dict[int, Tally], Outputs]:
    """Returns the tally of each shard, and what all of them said; rows of PACKED_OUTPUTS."""
    tallies: dict[int, Tally] = {}
    parts: list[OutputRows] = []
    columns = packed.column("partition").to_pylist(), packed.column("kind").to_pylist(), packed.column("packed")
    for partition, kind, value in zip(*columns, strict=True):
        if kind == TALLY:
            tallies[partition] = read_tally(value.as_buffer())
        else:
            parts.append(_unpack(kind, value.as_buffer()))
    return tallies, Outputs.of(parts)


def unpack_kind(kind: str, value: pa.Buffer) -> pa.Table:
    """Returns one value's rows, which are of that kind."""
    rows: pa.Table = getattr(Outputs.of([_unpack(kind, value)]), kind)
    return rows


def _unpack(kind: str, value: pa.Buffer) -> OutputRows:
    with pa.ipc.open_stream(value, options=_IPC_READ) as reader:
        layout = _read_layout(reader.schema.metadata[_LAYOUT])
        table = reader.read_all()
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    return OutputRows(kind, layout.rows, columns, layout.same, layout.first_seq, layout.copies)


def _write(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_IPC) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
