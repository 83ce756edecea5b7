"""The live coordinator on an embedded log, writing down what each micro-batch took; or the floor below it.

The floor is the same query with an empty function in place of the shards: what Spark itself takes for reading the log,
a shuffle, state and a commit of its checkpoint.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TextIO

import numpy as np
import pandas as pd
import pyarrow as pa
import typer
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.settings.file import load_settings
from coordinator_udf.shard.state_row.codec import STATE_VERSION
from coordinator_udf.streaming import coordinator
from coordinator_udf.streaming.coordinator import Coordinator
from coordinator_udf.streaming.options import StreamOptions
from coordinator_udf.streaming.packing import PACKED_OUTPUTS
from coordinator_udf.streaming.session import coordinator_session
from coordinator_udf.streaming.shard_function import leave_garbage_to_spark
from coordinator_udf.streaming.signals import stop_on_signals
from schemas.outputs import SHARD_STATE

#: Latencies are counted in steps of this many milliseconds.
STEP_MS = 10


class Progress(threading.Thread):
    """Writes a line of JSON for each micro-batch of a query.

    It asks for the JVM's own JSON now and then: a listener's Python objects would cost as much as what is measured.
    """

    def __init__(self, query: StreamingQuery, out: TextIO) -> None:
        super().__init__(name="progress", daemon=True)
        self._query = query
        self._out = out
        self._written = -1
        self._stopped = threading.Event()

    def run(self) -> None:
        """Writes until it is stopped."""
        while not self._stopped.wait(0.5):
            java_query = vars(self._query)["_jsq"]
            for progress in [json.loads(one.json()) for one in java_query.recentProgress()]:
                if progress["batchId"] > self._written:
                    self._written = progress["batchId"]
                    self._write(progress)

    def stop(self) -> None:
        """Ends it."""
        self._stopped.set()
        self.join()

    def _write(self, progress: dict[str, Any]) -> None:
        states = [
            state["customMetrics"].get("stateOnCurrentVersionSizeBytes", 0) for state in progress["stateOperators"]
        ]
        ends = [source["endOffset"]["append"] for source in progress["sources"] if source["endOffset"]]
        began = datetime.fromisoformat(progress["timestamp"]).timestamp()
        line = {
            "batch": progress["batchId"],
            "at": began + progress["durationMs"]["triggerExecution"] / 1_000,
            "ms": progress["durationMs"],
            "state_bytes": sum(states),
            "append": max(ends, default=0),
        }
        print(json.dumps(line), file=self._out, flush=True)


def floor_of(requests: DataFrame, settings: Settings, *, gaps_are_downtime: bool = False) -> DataFrame:
    """Returns the stateful stage (shard_function.coordinate) without what shards do: what Spark takes for it."""
    del settings, gaps_are_downtime

    def nothing(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        # As the shards' function does, so that this isn't what makes the difference.
        leave_garbage_to_spark()
        for _ in frames:
            pass
        state.update((STATE_VERSION, None, "", ""))
        return iter(())

    return requests.groupBy("shard").applyInPandasWithState(
        nothing, PACKED_OUTPUTS, SHARD_STATE, "append", GroupStateTimeout.NoTimeout
    )


def main(
    root: Annotated[Path, typer.Option(help="Where the log lies and everything else goes.")],
    floor: Annotated[bool, typer.Option(help="An empty function in place of the shards.")] = False,
) -> None:
    """Runs until SIGTERM."""
    if floor:
        setattr(coordinator, "coordinate", floor_of)  # noqa: B010 - the job has no such option, and shall have none
    options = StreamOptions(str(root / "log"), str(root / "tables"), str(root / "checkpoint"))
    stop = threading.Event()
    spark = coordinator_session()
    stop_on_signals(spark, stop)
    with (root / "progress").open("w") as progress, (root / "answers").open("w") as answered:

        def count(answers: pa.Table) -> None:
            late = (time.time() * 1_000 - np.asarray(answers.column("ts"))) // STEP_MS
            steps, counts = np.unique(late.astype(np.int64), return_counts=True)
            print(json.dumps([time.time(), steps.tolist(), counts.tolist()]), file=answered, flush=True)

        with Coordinator(spark, options, load_settings(None, ()), count) as running:
            written = Progress(running.query, progress)
            written.start()
            running.wait(stop)
            written.stop()
        spark.stop()


if __name__ == "__main__":
    typer.run(main)
