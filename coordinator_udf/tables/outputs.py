"""What shards say, in Arrow: a table a kind (schemas.outputs.KINDS), put together from parts.

In an answer to a heartbeat most columns say the same in each row. A part has those as one value each, which is how it
is made and how it travels (streaming.packing); a column is filled with a value once, for the parts of all shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from schemas.outputs import KINDS, outputs_arrow

SCHEMAS: Final[dict[str, pa.Schema]] = {kind: outputs_arrow(kind) for kind in KINDS}

_DIFFERENT: Final = object()


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Some rows of one kind.

    Attributes:
        kind: which of schemas.outputs.KINDS.
        rows: how many rows there are, at least one.
        columns: columns whose values differ, by name.
        same: the value of each other column whose rows all have one; what is in neither is null.
        first_seq: the first row's ``seq``, where they rise by one; then ``seq`` is in neither.
        copies: columns that are copies of others, by name.
    """

    kind: str
    rows: int
    columns: Mapping[str, pa.Array]
    same: Mapping[str, Any] = field(default_factory=dict)
    first_seq: int | None = None
    copies: Mapping[str, str] = field(default_factory=dict)

    def column(self, name: str, type_: pa.DataType) -> pa.Array:
        """Returns a column in full."""
        name = self.copies.get(name, name)
        if name in self.columns:
            return self.columns[name]
        if name == "seq" and self.first_seq is not None:
            return pa.array(np.arange(self.first_seq, self.first_seq + self.rows), type_)
        return repeated(self.same.get(name), self.rows, type_)

    def value(self, name: str) -> Any:
        """Returns what a column says in each row; something that equals nothing else where its rows differ."""
        name = self.copies.get(name, name)
        if name in self.columns or (name == "seq" and self.first_seq is not None):
            return _DIFFERENT
        return self.same.get(name)


class Outputs(NamedTuple):
    """What was said, a table a kind; the columns are those of schemas.outputs.KINDS.

    The rows of a table are ordered by ``seq`` where they are of one shard and one part.
    """

    responses: pa.Table
    records: pa.Table
    assignments: pa.Table
    transitions: pa.Table
    rejected: pa.Table

    @classmethod
    def of(cls, parts: Iterable[OutputRows]) -> Outputs:
        """Puts parts together, those of a kind in the order in which they are given."""
        by_kind: dict[str, list[OutputRows]] = {kind: [] for kind in KINDS}
        for part in parts:
            by_kind[part.kind].append(part)
        return cls(*(_table(SCHEMAS[kind], of_kind) for kind, of_kind in by_kind.items()))

    @classmethod
    def joined(cls, several: Sequence[Outputs]) -> Outputs:
        """Joins outputs, one after the other."""
        if not several:
            return cls.of(())
        return cls(*(pa.concat_tables(tables) for tables in zip(*several, strict=True)))


def _table(schema: pa.Schema, parts: Sequence[OutputRows]) -> pa.Table:
    if not parts:
        return schema.empty_table()
    return pa.table([_column(column, parts) for column in schema], schema=schema)


def _column(column: pa.Field, parts: Sequence[OutputRows]) -> pa.Array | pa.ChunkedArray:
    """Returns one column of all parts, which is made in one go if it says the same in all of them."""
    values = [part.value(column.name) for part in parts]
    if values[0] is not _DIFFERENT and all(value == values[0] for value in values):
        return repeated(values[0], sum(part.rows for part in parts), column.type)
    # One array, or several where one can't hold so many bytes.
    arrays = [part.column(column.name, column.type) for part in parts]
    return arrays[0] if len(arrays) == 1 else pa.chunked_array(arrays, column.type).combine_chunks()


def repeated(value: Any, count: int, type_: pa.DataType) -> pa.Array:
    """Returns a column that says the same in each row; None is null."""
    if isinstance(value, str) and len(value) * count > _KEPT_CHARACTERS:
        return pa.repeat(pa.scalar(value, type_), count)
    return _longest(value, type_, 1 << (count - 1).bit_length()).slice(0, count)


#: Up to how many characters such a column is kept for the next call of about its size, of 64 columns. Measured (CPU
#: time, the best of seven): one of 1,000 rows takes 0.7 us in place of 4, one of 100,000 0.8 in place of 157. Half and
#: double hold 32 and 128 MB at the most in place of 64.
_KEPT_CHARACTERS: Final = 1_000_000


@lru_cache(maxsize=64)
def _longest(value: Any, type_: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, type_) if value is None else pa.repeat(pa.scalar(value, type_), count)
