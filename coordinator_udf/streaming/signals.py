"""SIGTERM and Ctrl-C stop the coordinator between two micro-batches, also under spark-submit."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from coordinator_udf import stopping
from coordinator_udf.tables.spark_session import is_submitted


class _JvmHandler:
    """Is called by the JVM when it gets a signal."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def handle(self, _: Any) -> None:
        """Handles a signal; the method of sun.misc.SignalHandler."""
        self._stop.set()

    class Java:
        """What Py4J makes the JVM see."""

        implements: ClassVar[list[str]] = ["sun.misc.SignalHandler"]


def stop_on_signals(spark: SparkSession, stop: threading.Event) -> None:
    """Sets the event on SIGTERM and SIGINT, in place of what PySpark and the JVM do (cancel all jobs, exit)."""
    stopping.call_instead(stop.set)
    if not is_submitted():
        return
    # Under spark-submit the JVM is the process that a person or a supervisor sends signals to, and Python its child.
    from pyspark.java_gateway import ensure_callback_server_started

    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    misc = gateway.jvm.sun.misc
    for name in ("TERM", "INT"):
        misc.Signal.handle(misc.Signal(name), _JvmHandler(stop))
