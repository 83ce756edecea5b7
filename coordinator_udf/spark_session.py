"""A Spark session with Delta, started by Python or by spark-submit alike."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

#: What Delta needs in every session.
DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

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
    builder = SparkSession.Builder().appName(app_name)
    for name, value in {**DELTA_SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        jars = resolved_jars()
        builder = builder.config("spark.jars", jars) if jars else configure_spark_with_delta_pip(builder)
    return builder.getOrCreate()


def resolved_jars() -> str | None:
    """Delta's jars as Spark's setting ``spark.jars`` wants them; None where they are not all there."""
    if not RESOLVED_JARS.is_file():
        return None
    jars = RESOLVED_JARS.read_text(encoding="utf-8").split()
    return ",".join(jars) if jars and all(Path(jar).is_file() for jar in jars) else None


def resolve_jars() -> None:
    """Has Spark resolve Delta's jars into its Ivy cache and remembers where they are."""
    local = {"spark.master": "local[1]", "spark.ui.enabled": "false"}
    loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    RESOLVED_JARS.unlink(missing_ok=True)
    spark = delta_session("muster-setup", {**local, **loopback})
    jars = [jar.removeprefix("file://") for jar in spark.conf.get("spark.jars", "").split(",")]  # type: ignore[union-attr]
    spark.stop()
    RESOLVED_JARS.write_text("".join(f"{jar}\n" for jar in jars), encoding="utf-8")
