"""Sessions of Spark end without a word."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from coordinator_udf.tables.spark_session import stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_a_jvm_prints_past_its_log_while_a_session_ends_is_not_told(spark: SparkSession) -> None:
    java: Any = spark.sparkContext._jvm
    told = java.java.lang.System.err
    place = java.java.io.ByteArrayOutputStream()
    java.java.lang.System.setErr(java.java.io.PrintStream(place, True))
    try:
        # As Scala does with what no thread takes any more.
        ending = SimpleNamespace(sparkContext=spark.sparkContext, stop=java.java.lang.Thread.dumpStack)
        ending.stop()
        assert "dumpStack" in place.toString()
        place.reset()
        stop_session(cast("SparkSession", ending))
        assert place.toString() == ""
    finally:
        spark.sparkContext.setLogLevel("ERROR")
        java.java.lang.System.setErr(told)
