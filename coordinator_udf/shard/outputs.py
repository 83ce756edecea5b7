"""What a shard said (groups.decisions) as rows and in Arrow (schemas/outputs.py)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyarrow as pa

from coordinator_udf.groups.decisions import COLUMNS, Row, Said
from coordinator_udf.protocol.log_row import Output
from schemas.outputs import shard_output_arrow

OUTPUTS: Final = shard_output_arrow()
NOTHING: Final = OUTPUTS.empty_table()


def to_rows(said: Said, partition: int) -> list[Output]:
    """What was said, in order."""
    rows = [
        Output(kind, partition, **dict(zip(COLUMNS[kind], row, strict=True)))
        for kind, rows in said.by_kind().items()
        for row in rows
    ]
    return sorted(rows, key=lambda row: row.seq)


def to_table(said: Said, source: str, partition: int) -> pa.Table:
    """What was said, as SHARD_OUTPUT: one kind after the other, each in the order of ``seq``."""
    tables = [_table(kind, rows, source, partition) for kind, rows in said.by_kind().items() if rows]
    return pa.concat_tables(tables) if tables else NOTHING


def _table(kind: str, rows: list[Row], source: str, partition: int) -> pa.Table:
    count = len(rows)
    partitions = pa.repeat(pa.scalar(partition, pa.int32()), count)
    known = {"kind": repeated(kind, count), "source": repeated(source, count), "partition": partitions}
    for name, values in zip(COLUMNS[kind], zip(*rows, strict=True), strict=True):
        known[name] = pa.array(values, OUTPUTS.field(name).type)
    return pa.table([known.get(field.name, nulls(field.type, count)) for field in OUTPUTS], schema=OUTPUTS)


def repeated(text: str, count: int) -> pa.Array:
    """A column that says the same in each row."""
    return _longest(text, 1 << (count - 1).bit_length()).slice(0, count)


def nulls(type_: pa.DataType, count: int) -> pa.Array:
    """A column that says nothing."""
    return _longest_nulls(type_, 1 << (count - 1).bit_length()).slice(0, count)


# Such columns are made once for calls of a size.
@lru_cache(maxsize=64)
def _longest(text: str, count: int) -> pa.Array:
    return pa.repeat(text, count)


@lru_cache(maxsize=64)
def _longest_nulls(type_: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, type_)
