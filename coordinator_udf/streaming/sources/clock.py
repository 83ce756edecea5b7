"""The clock for logs that bring no ticks of their own: a streaming source whose rows are ticks.

A tick says: no request that is earlier than this will come any more. So it lags behind the machine's clock by
``log.clock.skew.max.ms``, which is how long a request may take from being stamped to being readable, and it is handled
after all requests of its micro-batch (packing orders rows by offset, and a tick's is the greatest). The clock is read
before the log is, and the job reads all requests that are there in each micro-batch, so none that lies in the log
waits behind a tick. Each micro-batch has a tick, by which its requests are bounded; how often there is one is the
query's trigger. What a tick says is in the query's offset log, so a batch that runs again sees the same time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from coordinator_udf.log.rows import control_rows
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.streaming.packing import pack_requests
from coordinator_udf.streaming.sources.packed import PackedSource, leave_signals_to_the_driver
from schemas.requests import LIVE, request_log_arrow

#: The source's name: ``spark.readStream.format("coordinator_clock")``.
FORMAT: Final = "coordinator_clock"

#: The offset of a tick among the rows of its micro-batch: after every request.
LAST: Final = 2**63 - 1

_SCHEMA: Final = request_log_arrow()


class ClockSource(PackedSource):
    """Ticks for every partition, packed (columns: packing.PACKED_REQUESTS).

    Options:
        partitions: the log's number of partitions.
        lagMs: how far ticks are behind the machine's clock.
        topics: the topics that exist, as JSON (the body of a TopicMetadata row); told when they change.
    """

    format_name = FORMAT

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        """Returns the reader that Spark drives."""
        leave_signals_to_the_driver()
        return ClockReader(
            int(self.options["partitions"]),
            int(self.options["lagMs"]),
            self.options.get("topics", ""),
        )


class ClockReader(SimpleDataSourceStreamReader):
    """Reads the machine's clock each time that Spark asks what there is, which is once a micro-batch."""

    def __init__(self, partitions: int, lag_ms: int, topics: str) -> None:
        self.partitions = partitions
        self.lag_ms = lag_ms
        self.topics = topics

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Returns the offset before the first tick; no topics are known there."""
        return {"ms": 0, "topics": ""}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
        """Returns the next tick.

        Where the machine's clock was set back, time hardly passes until that is made up for.
        """
        now_ms = time.time_ns() // 1_000_000 - self.lag_ms
        end = {"ms": max(now_ms, start["ms"] + 1), "topics": self.topics}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[Any, ...]]:  # noqa: N802
        """Returns the tick that ends a micro-batch, in every partition."""
        rows: list[dict[str, Any]] = []
        if end["topics"] != start["topics"]:
            # Before all requests of the batch: from here on these topics exist.
            metadata = control_rows(
                partitions=self.partitions, log_ts=0, api="TopicMetadata", body=json.loads(end["topics"])
            )
            rows += [{**row, "offset": -1} for row in metadata]
        ticks = control_rows(partitions=self.partitions, log_ts=end["ms"], api="Tick")
        rows += [{**row, "offset": LAST} for row in ticks]
        batch = pa.RecordBatch.from_pylist([{**row, "source": LIVE} for row in rows], _SCHEMA)
        packed = pack_requests([batch])
        return iter([row for part in packed for row in zip(*(c.to_pylist() for c in part.columns), strict=True)])


def bound_by_ticks(rows: pa.Table, settings: Settings) -> pa.Table:
    """Bounds the clocks of appenders by the clock of the job, where the job keeps the clock.

    A request that claims to be later than the tick of its micro-batch plus twice ``log.clock.skew.max.ms`` (a tick lags
    by it once) is set back to that. Rows of a log with ticks of its own come as they are: its appends were bounded.
    """
    ticks = rows.filter(pc.equal(rows.column("offset"), LAST)).column("log_ts")
    if len(ticks) == 0:
        return rows
    latest = pc.max(ticks).as_py() + 2 * settings.log_clock_skew_max_ms
    log_ts = np.asarray(pc.fill_null(rows.column("log_ts"), -1))
    bounded = pa.array(np.minimum(log_ts, latest), pa.int64(), mask=log_ts < 0)
    return rows.set_column(rows.column_names.index("log_ts"), rows.schema.field("log_ts"), bounded)
