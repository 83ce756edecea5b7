"""Units of work as Spark tasks, one each, with their progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from coordinator_udf.background import BackgroundThread

T = TypeVar("T")
R = TypeVar("R")

#: How often it is told how far the tasks are, in seconds; as in progress.
_PROGRESS_SECONDS = 5.0


def in_tasks(spark: SparkSession, units: Sequence[T], work: Callable[[T], R], say: Callable[[str], None]) -> list[R]:
    """Runs each unit as a task of its own and gives the results in the units' order.

    Args:
        work: runs in the workers; it and the units are pickled.
        say: gets a line of progress every few seconds.
    """
    if not units:
        return []
    context = spark.sparkContext
    with progress(context, say):
        return context.parallelize(list(units), len(units)).map(work).collect()


@contextmanager
def progress(context: SparkContext, say: Callable[[str], None]) -> Iterator[None]:
    """Says every few seconds how many of the running stage's tasks are done."""

    def watch(done: threading.Event) -> None:
        tracker = context.statusTracker()
        while not done.wait(_PROGRESS_SECONDS):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    say(f"{info.numCompletedTasks} of {info.numTasks} tasks done, {info.numActiveTasks} running")

    with BackgroundThread(watch, "replay-progress"):
        yield
