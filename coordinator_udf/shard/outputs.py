"""What a shard decided (groups.decisions) in Arrow, by kind (tables.outputs)."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from coordinator_udf.groups.decisions import COLUMNS, Decisions, Row
from coordinator_udf.tables.outputs import SCHEMAS, OutputRows

#: Name and type of the columns of each kind.
_TYPES: Final[dict[str, list[tuple[str, pa.DataType]]]] = {
    kind: [(name, SCHEMAS[kind].field(name).type) for name in names] for kind, names in COLUMNS.items()
}

#: What can be said once for all rows of a column.
_PLAIN: Final = (str, int, type(None))
#: From how many rows on a column that says the same in all is said once. Measured (CPU time, the best of seven): to see
#: that costs 0.06 us and spares an array of 2.5 us, as with half and double as many; but what is said once is made a
#: column later (tables.outputs.repeated), which costs 0.7 us.
_ENOUGH: Final = 16


def to_output_rows(decisions: Decisions, source: str, partition: int) -> list[OutputRows]:
    """Returns what was decided, each kind in the order of ``seq``; kinds of which there is nothing are left out."""
    return [_rows(kind, rows, source, partition) for kind, rows in decisions.by_kind().items() if rows]


def _rows(kind: str, rows: list[Row], source: str, partition: int) -> OutputRows:
    columns: dict[str, pa.Array] = {}
    same: dict[str, Any] = {"source": source, "partition": partition}
    for (name, type_), values in zip(_TYPES[kind], zip(*rows, strict=True), strict=True):
        first = values[0]
        if (
            type(first) in _PLAIN
            and len(rows) >= _ENOUGH
            and first == values[-1]
            and values.count(first) == len(values)
        ):
            same[name] = first
        else:
            columns[name] = pa.array(values, type_)
    return OutputRows(kind, len(rows), columns, same)
