"""Where requests come from: the embedded log, a Delta table, or JSON lines, all as packed requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from coordinator_udf.settings.file import CoordinatorConfig
from coordinator_udf.streaming.packing import PACKED_REQUESTS, pack_requests
from coordinator_udf.streaming.sources import clock as clock_source
from coordinator_udf.streaming.sources import embedded as log_source
from coordinator_udf.tables.places import is_uri
from coordinator_udf.user_errors import InputError
from schemas.request_row import Request
from schemas.requests import ADDED_LATER, LIVE, NEVER_NULL, REQUEST_COLUMNS, REQUEST_LOG, request_log_arrow


class SourceError(InputError, ValueError):
    """A source that can't be read as asked; the message says what is wrong and what to do."""


def embedded_requests(spark: SparkSession, path: Path, *, starting_append: int, max_rows: int) -> DataFrame:
    """Returns the embedded log as a stream. Whoever runs the job appends ticks to it (ticker.Ticker)."""
    spark.dataSource.register(log_source.EmbeddedLogSource)
    return (
        spark.readStream.format(log_source.FORMAT)
        .option("path", str(path))
        .option("startingAppend", starting_append)
        .option("maxRowsPerBatch", max_rows)
        .load()
    )


def delta_requests(spark: SparkSession, path: str, partitions: int) -> DataFrame:
    """Returns a Delta table of the log's rows (schemas.requests.REQUEST_LOG) as a stream.

    Each micro-batch takes all that is there: requests that wait must not be overtaken by the clock.
    """
    from delta import DeltaTable
    from pyspark.sql import functions as f

    if not DeltaTable.isDeltaTable(spark, path):
        raise SourceError(
            f"there is no Delta table at {path}; --source delta reads a table with the request log's columns"
        )
    rows = spark.readStream.format("delta").option("maxFilesPerTrigger", 2**31 - 1).load(path)
    rows = rows.withColumns({name: f.lit(None).cast("string") for name in ADDED_LATER - {*rows.columns}})
    missing = [name for name in REQUEST_COLUMNS if name not in rows.columns]
    if missing:
        raise SourceError(
            f"the Delta table {path} has no column {', '.join(missing)}; expected the request log's columns"
        )
    return _packed(rows.select(*REQUEST_LOG.fieldNames()), partitions)


def json_requests(spark: SparkSession, path: str, partitions: int) -> DataFrame:
    """Returns a directory of JSON lines files, each line a row of the log, as a stream.

    Files are added whole (by a rename).

    A line that is no row becomes a rejected request.
    """
    if not is_uri(path) and not Path(path).is_dir():
        raise SourceError(f"there is no directory {path}; --source json reads the .json and .jsonl files in it")
    lines = spark.readStream.format("text").option("pathGlobFilter", "*.json*").load(path)
    return _packed(lines, partitions)


def with_clock(requests: DataFrame, partitions: int, config: CoordinatorConfig) -> DataFrame:
    """Returns requests and the ticks of the job's own clock, one a micro-batch: a trigger says how often."""
    requests.sparkSession.dataSource.register(clock_source.ClockSource)
    ticks = (
        requests.sparkSession.readStream.format(clock_source.FORMAT)
        .option("partitions", partitions)
        .option("lagMs", config.settings.log_clock_skew_max_ms)
        .option("topics", topics_body(config))
        .load()
    )
    # Spark asks the sources in this order, and a request may come between the first and the second.
    return ticks.unionByName(requests)


def topics_body(config: CoordinatorConfig) -> str:
    """Returns the body of the TopicMetadata row that tells the topics of a settings file; empty where it names none."""
    return msgspec.json.encode({"topics": config.topics}).decode() if config.topics else ""


def _packed(rows: DataFrame, partitions: int) -> DataFrame:
    is_text = rows.columns == ["value"]

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = read_lines(batches) if is_text else conformed(batches)
        return pack_requests(placed(batch, partitions) for batch in rows)

    return rows.mapInArrow(pack, PACKED_REQUESTS)


def conformed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields Spark's record batches with exactly the schema of the request log."""
    schema = request_log_arrow()
    for batch in batches:
        table = pa.Table.from_batches([batch]).select(REQUEST_COLUMNS).cast(schema)
        yield from table.to_batches()


#: A line of JSON as a row of the request log: what isn't needed to place it may be left out.
_Row: Final = msgspec.defstruct(
    "_Row",
    [
        (name, hint) if name in NEVER_NULL else (name, hint | None, None)
        for name, hint in get_type_hints(Request, include_extras=True).items()
    ],
)


def read_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields lines of JSON as rows of the request log.

    A line that is none becomes a row of no API, which the shard rejects; its body is the line.
    """
    decoder = msgspec.json.Decoder(_Row)
    schema = request_log_arrow()
    for batch in batches:
        rows = []
        for line in batch.column("value").to_pylist():
            try:
                rows.append(msgspec.structs.asdict(decoder.decode(line)))
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                unreadable = f"none, the line can't be read ({error})"
                rows.append({"partition": 0, "offset": 0, "log_ts": 0, "api": unreadable, "body": line})
        yield pa.RecordBatch.from_pylist([{"source": LIVE, **row} for row in rows], schema)


def placed(batch: pa.RecordBatch, partitions: int) -> pa.RecordBatch:
    """Sends rows of partitions that the log hasn't to partition 0, as rows of no API: there they are rejected."""
    partition = batch.column("partition")
    strange = pc.fill_null(pc.or_(pc.less(partition, 0), pc.greater_equal(partition, partitions)), True)
    if not pc.any(strange).as_py():
        return batch
    rows = batch.to_pylist()
    for place in pc.indices_nonzero(strange).to_pylist():
        row = rows[place]
        what = f"{row['api']} of partition {row['partition']}, where the log has 0 to {partitions - 1}"
        rows[place] = row | {"partition": 0, "api": what}
    return pa.RecordBatch.from_pylist(rows, batch.schema)
