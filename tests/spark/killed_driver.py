"""A coordinator that dies by its own hand at a given point.

``killed_driver.py ROOT MAX_ROWS POINT AFTER FOLD_AFTER RECOVER LARGE_BATCH SETTING...``

POINT: ``none``, ``stage`` (while the stateful stage runs, when a shard was handled and its state not yet committed),
``commit`` (after the first table of a batch was written), ``answer`` (after all were), ``write`` (before any was),
``files`` (after executors wrote the files of a large batch, before any is in a table),
``fold`` (after a piece of the log was written to its history, before it left the log); and of a
recovery ``appending`` (while the load is put on the log), ``appended`` (after that), ``noted`` (after the checkpoint
was told). AFTER: in which batch of this run, or which piece or append. FOLD_AFTER: after how many rows the log is
folded. RECOVER: 1 to load the groups. LARGE_BATCH: from how many rows on a batch is large. What is killed is the real
process, with SIGKILL.

It starts Spark, waits for a line on its standard input, and becomes the coordinator then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.history import LogHistory
from coordinator_udf.settings.file import CoordinatorConfig
from coordinator_udf.shard.state_row.codec import encode
from coordinator_udf.streaming import recovery, shard_function
from coordinator_udf.streaming.checkpoint import RecoveryStart
from coordinator_udf.streaming.checkpoint_files import CheckpointFiles
from coordinator_udf.streaming.coordinator import Coordinator
from coordinator_udf.streaming.folding import Folder
from coordinator_udf.streaming.large_batch import LargeBatch, WrittenFiles
from coordinator_udf.streaming.options import StreamOptions
from coordinator_udf.streaming.session import coordinator_session
from coordinator_udf.streaming.sink import CoordinatorSink
from coordinator_udf.tables.delta import OutputTables

#: The variable that stands for --no-durable.
NOT_DURABLE = "MUSTER_TEST_NOT_DURABLE"
#: Of the batches that a checkpoint retains: nothing of the log is folded before there are so many.
FEW_BATCHES = "2"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, after: int) -> None:
    batches = 0
    append, write_files = OutputTables._append, LargeBatch.write_files

    def counting(write: Callable[..., None]) -> Callable[..., None]:
        def counted(*given: Any) -> None:
            nonlocal batches
            batches += 1
            if point == "write" and batches > after:
                die()
            write(*given)
            if point == "answer" and batches > after:
                die()

        return counted

    def first(self: OutputTables, name: str, rows: Any, app_id: str, batch: int) -> None:
        append(self, name, rows, app_id, batch)
        if point == "commit" and batches > after:
            die()

    def not_committed(self: LargeBatch) -> WrittenFiles:
        written = write_files(self)
        if point == "files" and batches > after:
            die()
        return written

    pieces = 0
    written = LogHistory.append

    def folding(self: LogHistory, rows: pa.Table, until: int) -> None:
        nonlocal pieces
        pieces += 1
        written(self, rows, until)
        if point == "fold" and pieces > after:
            die()

    if point == "stage":
        driver = os.getpid()

        def encoding(shard: Any) -> Any:
            # Workers get it with the function that names it, and outlive their driver for a moment.
            state = encode(shard)
            if shard.started and shard.partition > 0:
                os.kill(driver, signal.SIGKILL)
            return state

        vars(shard_function)["encode"] = encoding
    LogHistory.append = folding  # type: ignore[method-assign]
    arm_recovery(point, after)
    CoordinatorSink.write = counting(CoordinatorSink.write)  # type: ignore[method-assign]
    CoordinatorSink.write_large = counting(CoordinatorSink.write_large)  # type: ignore[method-assign]
    OutputTables._append = first  # type: ignore[method-assign]
    LargeBatch.write_files = not_committed  # type: ignore[method-assign]


def arm_recovery(point: str, after: int) -> None:
    inserted = 0
    append_all, insert, write_start = EmbeddedLog.append_all, EmbeddedLog._insert, vars(recovery)["write_start"]

    def appending(self: EmbeddedLog, *given: Any) -> int:
        nonlocal inserted
        inserted += 1
        if point == "appending" and inserted > after:
            die()
        return insert(self, *given)

    def appended(self: EmbeddedLog, appends: Any) -> range:
        numbers = append_all(self, appends)
        if point == "appended":
            die()
        return numbers

    def noted(checkpoint: CheckpointFiles, start: RecoveryStart) -> None:
        write_start(checkpoint, start)
        if point == "noted":
            die()

    EmbeddedLog._insert = appending  # type: ignore[method-assign,assignment]
    EmbeddedLog.append_all = appended  # type: ignore[method-assign]
    vars(recovery)["write_start"] = noted


def main(
    root: Path,
    max_rows: int,
    point: str,
    after: int,
    *,
    fold_after: int,
    recover: bool,
    large_batch: int,
    settings: Mapping[str, str],
) -> None:
    from coordinator_udf.settings.coordinator import Settings

    arm(point, after)
    defaults = Folder.__init__.__kwdefaults__
    assert defaults is not None
    defaults["interval_s"] = 0.2
    spark = coordinator_session(more={"spark.sql.streaming.minBatchesToRetain": FEW_BATCHES})
    if not sys.stdin.readline():
        sys.exit("whoever started this driver is gone")
    options = StreamOptions(
        str(root / "log"),
        str(root / "tables"),
        str(root / "checkpoint"),
        available_now=True,
        max_rows=max_rows,
        fold_after_rows=fold_after,
        recover=recover,
        large_batch_rows=large_batch,
        durable=NOT_DURABLE not in os.environ,
    )
    with Coordinator(spark, options, CoordinatorConfig(Settings.from_kafka(settings))) as running:
        running.wait(threading.Event())
    spark.stop()


if __name__ == "__main__":
    root, max_rows, point, after, fold_after, recover, large_batch, *given = sys.argv[1:]
    main(
        Path(root),
        int(max_rows),
        point,
        int(after),
        fold_after=int(fold_after),
        recover=recover == "1",
        large_batch=int(large_batch),
        settings=dict(text.split("=", 1) for text in given),
    )
