"""The Spark session of the live coordinator, and the package on its workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from coordinator_udf.streaming import worker_daemon
from coordinator_udf.tables.spark_session import delta_session, is_submitted
from coordinator_udf.user_errors import InputError

ROOT: Final = Path(__file__).resolve().parents[2]
SPARK_CONF: Final = ROOT / "conf" / "spark.conf"

#: What the stream counts on, whatever spark-submit was told.
REQUIRED: Final = {
    # A plan that changes between micro-batches costs more than it gains, and stateful stages can't change theirs.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # No timers of Spark's are used, so a batch without data has nothing to do.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Each state has few rows, which is soon read without a new snapshot: that snapshots lag is no news.
    "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag": "false",
    "spark.sql.streaming.stateStore.forceSnapshotUploadOnLag": "false",
}

#: Half of the JVM's CPU time in a start was for its second compiler, which compiles once more what the first has, and
#: whose profiles the first has to take. A micro-batch, of which the JVM computes little, takes the same without it.
JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1",)


class SparkConfError(InputError, ValueError):
    """A line of a Spark settings file that isn't ``name value``."""


def coordinator_session(
    conf: Path | None = None, more: Mapping[str, str] | None = None, *, with_kafka: bool = False
) -> SparkSession:
    """Returns a session with Delta and the coordinator's sources, with the settings of conf/spark.conf.

    Started by plain Python, the session is made with these settings. Under spark-submit there is one already: what was
    given on its command line stays, and the settings that can be changed in a running session are.

    Args:
        conf: a file like spark-defaults.conf; default conf/spark.conf beside the package, if it is there.
        more: settings that win over the file's.
        with_kafka: whether the request log is a Kafka topic.

    Raises:
        SparkConfError: a line of the file has no value.
    """
    path = conf or SPARK_CONF
    settings = read_spark_conf(path) if conf is not None or path.is_file() else {}
    submitted = is_submitted()
    if submitted:
        # What spark-submit was told wins; the builder's settings would win over it.
        from pyspark import SparkConf

        given = {name for name, _ in SparkConf().getAll()}
        settings = {name: value for name, value in settings.items() if name not in given}
    else:
        _let_workers_find_the_package()
        if settings.get("spark.master", "local").startswith("local"):
            settings = {"spark.python.daemon.module": worker_daemon.MODULE, **settings}
    spark = delta_session(
        "muster-coordinator", {**settings, **REQUIRED, **(more or {})}, with_kafka=with_kafka, jvm_options=JVM_OPTIONS
    )
    # What plans a source's micro-batches on the driver doesn't get --py-files by itself.
    spark.sparkContext.environment.setdefault("PYTHONPATH", str(ROOT))
    return spark


def read_spark_conf(path: Path) -> dict[str, str]:
    """Returns the settings in a file in the form of spark-defaults.conf: ``name value`` lines and ``#`` comments.

    Raises:
        SparkConfError: the file can't be read, or a line has no value.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SparkConfError(f"Spark's settings in {path} can't be read: {error}") from error
    settings = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, *value = text.split(maxsplit=1)
        if not value:
            raise SparkConfError(f"{path}, line {number} is {text!r}, expected a setting's name and its value")
        settings[name] = value[0]
    return settings


def _let_workers_find_the_package() -> None:
    # Workers of a local session are children of the JVM, which inherits this; on a cluster --py-files counts.
    known = os.environ.get("PYTHONPATH", "")
    if str(ROOT) not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), known)))
