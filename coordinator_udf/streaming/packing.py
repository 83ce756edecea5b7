"""Rows of one partition packed into a binary column, for the way through Spark.

Between Python and the JVM each column of each key costs Spark more than all of its rows do (pandas, a call a key), and
the log's rows have 18 columns. So rows travel as Arrow record batches in one binary column, a few a partition: a
micro-batch's cost then hardly depends on the number of columns, and the rows are never turned into pandas.

Outputs of a shard that are heartbeats' answers differ in few columns, so theirs travel without those that say the same
in each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from coordinator_udf.streaming.shard_keys import shard_key
from schemas.outputs import shard_output_arrow
from schemas.requests import request_log_arrow

#: Requests on their way to their shard, which is named by its key (shard_keys).
PACKED_REQUESTS: Final = StructType(
    [StructField("shard", LongType(), False), StructField("requests", BinaryType(), False)]
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
# Without threads: handing a few kilobytes to other threads costs as much as packing them.
_IPC: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_IPC_READ: Final = pa.ipc.IpcReadOptions(use_threads=False)
_PACKED: Final = pa.schema([pa.field("shard", pa.int64(), False), pa.field("requests", pa.binary(), False)])


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
    keys = [shard_key(number) for number in numbers.tolist()]
    return pa.record_batch([pa.array(keys, pa.int64()), pa.array(values, pa.binary())], schema=_PACKED)


def unpack_requests(values: Iterable[bytes]) -> pa.Table:
    """The rows of one partition, ordered by offset."""
    table = pa.concat_tables([_read(value) for value in values])
    offsets = np.asarray(table.column("offset")) if table.column("offset").null_count == 0 else None
    # Sorting moves all columns, and one source alone delivers in order.
    if offsets is not None and np.all(offsets[:-1] <= offsets[1:]):
        return table
    return table.sort_by("offset")


class _Uniform(msgspec.Struct):
    """What packed outputs leave out.

    Attributes:
        rows: how many rows there are.
        values: by the column's name, what it says in each row.
        first_seq: of the first row, if ``seq`` then rises by one; else None.
        by_request: whether ``by`` is ``request_id`` in each row.
    """

    rows: int
    values: dict[str, int | str | None]
    first_seq: int | None
    by_request: bool


class _Part(NamedTuple):
    uniform: _Uniform
    columns: dict[str, pa.Array]


_UNIFORM: Final = b"uniform"
_DIFFERENT: Final = object()

#: From how many characters on a text is not left out, though each row says it.
_LONG_TEXT: Final = 1_000
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Uniform).decode


def pack_outputs(outputs: pa.Table) -> bytes:
    """Rows of SHARD_OUTPUT as one value of PACKED_OUTPUTS."""
    outputs = outputs.combine_chunks()
    uniform = _Uniform(len(outputs), {}, None, False)
    columns = {name: outputs.column(name) for name in outputs.column_names}
    if len(outputs):
        seq = np.asarray(columns["seq"])
        if np.all(np.diff(seq) == 1):
            uniform.first_seq = int(seq[0])
            del columns["seq"]
        by, request_id = columns["by"], columns["request_id"]
        if by.null_count == request_id.null_count == 0 and by.equals(request_id):
            uniform.by_request = True
            del columns["by"]
        for name, column in list(columns.items()):
            if _is_uniform(column):
                uniform.values[name] = column[0].as_py()
                del columns[name]
    schema = pa.schema([_OUTPUTS.field(name) for name in columns], {_UNIFORM: _encode(uniform)})
    return _write(pa.table(list(columns.values()), schema=schema))


def _is_uniform(column: pa.ChunkedArray) -> bool:
    """Whether a column says the same in each row. Bytes and long texts count only if null: copies of them are dear."""
    if column.null_count:
        return bool(column.null_count == len(column))
    if pa.types.is_binary(column.type):
        return False
    # Most columns that differ do so at once.
    first = column[0]
    if first != column[len(column) - 1] or (pa.types.is_string(column.type) and len(first.as_py()) > _LONG_TEXT):
        return False
    return bool(pc.all(pc.equal(column, first)).as_py())


def unpack_outputs(packed: pa.Table) -> pa.Table:
    """What all shards said in a micro-batch, the rows of a partition ordered by seq.

    Args:
        packed: the column of PACKED_OUTPUTS.
    """
    parts = [_read_outputs(value.as_buffer()) for value in packed.column("outputs")]
    parts = [part for part in parts if part.uniform.rows]
    if not parts:
        return _OUTPUTS.empty_table()
    table = pa.table([_column(field, parts) for field in _OUTPUTS], schema=_OUTPUTS)
    # Sorting moves all columns; a batch of heartbeats is sorted already but for the order of its shards.
    partition, seq = (np.asarray(table.column(name)) for name in ("partition", "seq"))
    if np.any((np.diff(seq) < 0) & (np.diff(partition) == 0)):
        table = table.sort_by([("partition", "ascending"), ("seq", "ascending")]).combine_chunks()
    return table


def _read_outputs(value: pa.Buffer) -> _Part:
    with pa.ipc.open_stream(value, options=_IPC_READ) as reader:
        uniform = _decode(reader.schema.metadata[_UNIFORM])
        table = reader.read_all()
    return _Part(uniform, {name: table.column(name).combine_chunks() for name in table.column_names})


def _column(field: pa.Field, parts: Sequence[_Part]) -> pa.Array | pa.ChunkedArray:
    """One column of all parts, which is made in one go if it says the same in all of them."""
    name = field.name
    said = [part.uniform.values.get(name, _DIFFERENT) for part in parts]
    if said[0] is not _DIFFERENT and all(value == said[0] for value in said):
        return _repeated(said[0], sum(part.uniform.rows for part in parts), field.type)
    # One array, or several where one can't hold so many bytes.
    return pa.chunked_array([_part_of(field, part) for part in parts], field.type).combine_chunks()


def _part_of(field: pa.Field, part: _Part) -> pa.Array:
    uniform = part.uniform
    if field.name in part.columns:
        return part.columns[field.name]
    if field.name == "by" and uniform.by_request:
        return _part_of(_OUTPUTS.field("request_id"), part)
    if field.name == "seq" and uniform.first_seq is not None:
        return pa.array(np.arange(uniform.first_seq, uniform.first_seq + uniform.rows), field.type)
    return _repeated(uniform.values[field.name], uniform.rows, field.type)


def _repeated(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def _write(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_IPC) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read(value: bytes | pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(value, options=_IPC_READ) as reader:
        return reader.read_all()
