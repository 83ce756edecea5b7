"""A coordinator that dies by its own hand at a given point: ``killed_driver.py ROOT MAX_ROWS POINT AFTER``.

POINT: ``none``, ``commit`` (after the first table of a batch was written), ``answer`` (after all were), ``write``
(before any was). AFTER: in which batch of this run. What is killed is the real process, with SIGKILL.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from coordinator_udf.settings_file import CoordinatorConfig
from coordinator_udf.streaming.coordinator import Coordinator, StreamOptions
from coordinator_udf.streaming.delta_tables import OutputTables
from coordinator_udf.streaming.session import coordinator_session
from coordinator_udf.streaming.sink import CoordinatorSink


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, after: int) -> None:
    batches = 0
    write, small = CoordinatorSink.write, OutputTables._write_small

    def counting(self: CoordinatorSink, packed: pa.Table, query_id: str, batch_id: int) -> None:
        nonlocal batches
        batches += 1
        if point == "write" and batches > after:
            die()
        write(self, packed, query_id, batch_id)
        if point == "answer" and batches > after:
            die()

    def first(self: OutputTables, name: str, rows: pa.Table, app_id: str, batch: int) -> None:
        small(self, name, rows, app_id, batch)
        if point == "commit" and batches > after:
            die()

    CoordinatorSink.write = counting  # type: ignore[method-assign]
    OutputTables._write_small = first  # type: ignore[method-assign]


def main(root: Path, max_rows: int, point: str, after: int, settings: Mapping[str, str]) -> None:
    from coordinator_udf.protocol.settings import Settings

    arm(point, after)
    spark = coordinator_session()
    options = StreamOptions(
        str(root / "log"), str(root / "tables"), str(root / "checkpoint"), available_now=True, max_rows=max_rows
    )
    with Coordinator(spark, options, CoordinatorConfig(Settings.from_kafka(settings))) as coordinator:
        coordinator.wait(threading.Event())
    spark.stop()


if __name__ == "__main__":
    given = dict(text.split("=", 1) for text in sys.argv[5:])
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), given)
