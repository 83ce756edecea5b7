"""One large micro-batch of the live coordinator, and what it took of the driver: time, CPU time and memory.

A small one goes before, so that neither Spark's start nor that of Python's workers is measured.
"""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from pyspark.sql import SparkSession

from coordinator_udf.settings.file import load_settings
from coordinator_udf.streaming.coordinator import Coordinator
from coordinator_udf.streaming.options import StreamOptions
from coordinator_udf.streaming.session import coordinator_session
from scripts.benchmarks.running import tree_use

_PROC: Final = Path("/proc")
#: Written to a process's clear_refs, it makes the peak of its memory begin anew.
_RESET_PEAK: Final = "5"


class Taken(msgspec.Struct, frozen=True):
    """What a micro-batch took: milliseconds by Spark's phases, and of the driver's two processes the rest.

    Attributes:
        python_bytes, java_bytes: the most resident memory.
        python_grown_bytes, java_grown_bytes: by how much that is more than before.
        cpu_s: CPU time.
    """

    requests: int
    ms: dict[str, int]
    python_bytes: int
    java_bytes: int
    python_grown_bytes: int
    java_grown_bytes: int
    cpu_s: float


def main(
    *,
    root: Annotated[Path, typer.Option(help="Where everything goes.")],
    log: Annotated[str, typer.Option(help="A Delta table of requests, all for one micro-batch.")],
    warm_up: Annotated[str, typer.Option(help="Another, for the one before.")],
    partitions: Annotated[int, typer.Option()],
    master: Annotated[str, typer.Option(help="Spark's master.")],
    large_batch: Annotated[int, typer.Option(help="As of the live coordinator.")],
) -> None:
    """Runs both and writes what the second took to ROOT/taken."""
    spark = coordinator_session(None, {"spark.master": master, "spark.log.level": "ERROR"})
    _run(spark, warm_up, root / "warm", partitions, large_batch)
    python, java = _driver()
    gc.collect()
    for process in (python, java):
        (_PROC / str(process) / "clear_refs").write_text(_RESET_PEAK)
    before = tree_use(os.getpid())
    running = _run(spark, log, root / "measured", partitions, large_batch)
    after = tree_use(os.getpid())
    progress = [one for one in running.query.recentProgress if one.numInputRows]
    assert len(progress) == 1, progress
    taken = Taken(
        running.sink.totals.requests,
        dict(progress[0].durationMs),
        _peak_bytes(python),
        _peak_bytes(java),
        _peak_bytes(python) - before[python].resident_bytes,
        _peak_bytes(java) - before[java].resident_bytes,
        sum(after[process].cpu_s - before[process].cpu_s for process in (python, java)),
    )
    (root / "taken").write_bytes(msgspec.json.encode(taken))
    spark.stop()


def _run(spark: SparkSession, log: str, root: Path, partitions: int, large_batch: int) -> Coordinator:
    options = StreamOptions(
        log,
        str(root / "tables"),
        str(root / "checkpoint"),
        source="delta",
        partitions=partitions,
        available_now=True,
        large_batch_rows=large_batch,
    )
    with Coordinator(spark, options, load_settings(None, ())) as running:
        running.wait(threading.Event())
    return running


def _driver() -> tuple[int, int]:
    """Returns the driver: this process, and its JVM, of which executors are children."""
    children = [int(child) for child in (_PROC / f"self/task/{os.getpid()}/children").read_text().split()]
    [java] = [child for child in children if "java" in (_PROC / str(child) / "comm").read_text()]
    return os.getpid(), java


def _peak_bytes(process: int) -> int:
    lines = (_PROC / str(process) / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


if __name__ == "__main__":
    typer.run(main)
