"""What a shard decided (groups.decisions) in Arrow, by kind (tables.outputs)."""

from __future__ import annotations

import pyarrow as pa

from coordinator_udf.groups.decisions import COLUMNS, Decisions, Row
from coordinator_udf.tables.outputs import SCHEMAS, OutputRows


def to_output_rows(decisions: Decisions, source: str, partition: int) -> list[OutputRows]:
    """What was decided, each kind in the order of ``seq``; kinds of which there is nothing are left out."""
    same = {"source": source, "partition": partition}
    return [
        OutputRows(kind, len(rows), _columns(kind, rows), same) for kind, rows in decisions.by_kind().items() if rows
    ]


def _columns(kind: str, rows: list[Row]) -> dict[str, pa.Array]:
    schema = SCHEMAS[kind]
    return {
        name: pa.array(values, schema.field(name).type)
        for name, values in zip(COLUMNS[kind], zip(*rows, strict=True), strict=True)
    }
