"""The Spark session of a replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from coordinator_udf import stopping
from coordinator_udf.replay.inputs.own_log import SLICE_ROWS
from coordinator_udf.tables.spark_session import delta_session

_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(SLICE_ROWS),
    # The job says itself how far it is.
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def replay_session() -> Iterator[SparkSession]:
    """Gives a session with Delta that is stopped at the end; quiet, as the job prints its own progress."""
    spark = delta_session("muster-replay", _SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        if not stopping.was_stopped():
            spark.stop()
