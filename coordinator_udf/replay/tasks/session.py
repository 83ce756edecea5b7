"""The Spark session of a replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from coordinator_udf import stopping
from coordinator_udf.replay.inputs.detect import Format
from coordinator_udf.replay.inputs.own_log import SLICE_ROWS
from coordinator_udf.replay.inputs.plan import SourceInput
from coordinator_udf.tables.spark_session import delta_session, is_submitted, stop_session

#: The project's own logs, which are shared among Spark's tasks shard by shard.
OWN_FORMS = frozenset({Format.TABLE, Format.LOG})

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
            stop_session(spark)


@contextmanager
def session_if_needed(sources: Sequence[SourceInput]) -> Iterator[SparkSession | None]:
    """Gives a session for logs that Spark shares among tasks, and where spark-submit gave the job executors.

    To start one takes longer than to read most recorded logs; None leaves them to processes of this machine.
    """
    if any(source.form in OWN_FORMS for source in sources) or is_submitted():
        with replay_session() as spark:
            yield spark
    else:
        yield None
