"""A Spark session with Delta, started by Python or by spark-submit alike."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

#: What Delta needs in every session.
DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

#: What a session of this machine alone has where nothing else is said: quiet, and not to be reached from elsewhere.
LOCAL_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A table's list of files is short: no need to compute it in 50 tasks.
    "spark.databricks.delta.snapshotPartitions": "2",
}

LOGGING_CONF: Final = Path(__file__).resolve().parents[2] / "conf" / "log4j2.properties"

#: Spark's classes as the JVM has them in memory, made by scripts/setup: half of a session's start is loading them.
CLASS_ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
_QUIET_ARCHIVE: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"

#: Where scripts/setup keeps the paths of Delta's jars, one a line.
RESOLVED_JARS: Final = Path(sys.prefix) / "delta-jars"


def delta_session(app_name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session that can read and write Delta tables.

    Under spark-submit, its ``--packages`` brings Delta's jars. Else they are those that scripts/setup resolved, or
    Spark resolves them now. Workers of a local session run the Python that runs this.

    Args:
        app_name: how Spark shows the job.
        settings: Spark settings; they win over those that spark-submit was given.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = {**({} if submitted else _local(settings or {})), **DELTA_SETTINGS, **(settings or {})}
    builder = SparkSession.Builder().appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    if not submitted:
        jars = resolved_jars()
        builder = builder.config("spark.jars", jars) if jars else configure_spark_with_delta_pip(builder)
    return builder.getOrCreate()


def _local(settings: Mapping[str, str]) -> dict[str, str]:
    if not settings.get("spark.master", "local").startswith("local"):
        return {}
    # Else Spark warns, on a machine whose name is a loopback address, that it takes another.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = [f"-Dlog4j2.configurationFile={LOGGING_CONF.as_uri()}"] if LOGGING_CONF.is_file() else []
    if CLASS_ARCHIVE.is_file():
        # One that is of another JVM or other jars is left alone, and classes are loaded from these.
        options += [f"-XX:SharedArchiveFile={CLASS_ARCHIVE}", _QUIET_ARCHIVE]
    return {**LOCAL_SETTINGS, "spark.driver.extraJavaOptions": " ".join(options)}


def resolved_jars() -> str | None:
    """Delta's jars as Spark's setting ``spark.jars`` wants them; None where they are not all there."""
    if not RESOLVED_JARS.is_file():
        return None
    jars = RESOLVED_JARS.read_text(encoding="utf-8").split()
    return ",".join(jars) if jars and all(Path(jar).is_file() for jar in jars) else None


def resolve_jars() -> None:
    """Has Spark resolve Delta's jars into its Ivy cache and remembers where they are."""
    RESOLVED_JARS.unlink(missing_ok=True)
    spark = delta_session("muster-setup", {"spark.master": "local[1]"})
    jars = [jar.removeprefix("file://") for jar in spark.conf.get("spark.jars", "").split(",")]  # type: ignore[union-attr]
    spark.stop()
    RESOLVED_JARS.write_text("".join(f"{jar}\n" for jar in jars), encoding="utf-8")


def settings_to_archive(draft: Path) -> dict[str, str]:
    """Settings of a session whose JVM keeps the classes that it has loaded in a file, when it ends."""
    options = f"-XX:ArchiveClassesAtExit={draft} {_QUIET_ARCHIVE}"
    return {"spark.master": "local[2]", "spark.driver.extraJavaOptions": options}


def end_jvm(spark: SparkSession, timeout_s: float) -> None:
    """Ends a session and its JVM, and waits until the JVM is gone."""
    jvm: Any = spark.sparkContext._gateway  # noqa: SLF001
    spark.stop()
    # The JVM ends with its standard input.
    jvm.shutdown()
    jvm.proc.stdin.close()
    jvm.proc.wait(timeout_s)
