"""A shard's edge for tests: rows in, rows out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from coordinator_udf.log.rows import request_rows
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.replay.tasks.in_process import request_batch
from coordinator_udf.shard.batches import process_batch
from coordinator_udf.shard.shard import Shard
from coordinator_udf.tables.outputs import Outputs


@dataclass(frozen=True)
class Output:
    """A row that a shard put out, of whatever kind (schemas.outputs.KINDS). Columns that its kind hasn't are null."""

    kind: str
    columns: dict[str, Any] = field(hash=False)

    def __getattr__(self, name: str) -> Any:
        return self.columns.get(name)


def rows_of(
    api: str, version: int, body: Mapping[str, Any], log_ts: int, request_id: str, *, partitions: int = 1, **more: Any
) -> list[dict[str, Any]]:
    """The rows of a client's request, before they have offsets."""
    return request_rows(
        partitions=partitions,
        log_ts=log_ts,
        request_id=request_id,
        api=api,
        api_version=version,
        client_id="c",
        client_host="/h",
        body=body,
        **more,
    )


def as_batch(rows: Iterable[Request], source: str = "live") -> pa.RecordBatch:
    return request_batch(source, [row._asdict() for row in rows])


def in_order(outputs: Outputs) -> list[Output]:
    """The rows of all kinds, in the order of ``seq``."""
    rows = [Output(kind, row) for kind, table in outputs._asdict().items() for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row.columns["partition"], row.columns["seq"]))


def process_rows(shard: Shard, rows: Sequence[Request], *, short_way: bool = True) -> list[Output]:
    return in_order(process_batch(shard, "live", as_batch(rows), short_way=short_way).outputs()) if rows else []
