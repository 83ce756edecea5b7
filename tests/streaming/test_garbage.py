"""Workers leave the search for garbage to Spark, which is right as long as Spark's own worker loop searches."""

from __future__ import annotations

import inspect
import subprocess
import sys

from pyspark import daemon

from tests.conftest import ROOT

ASKED_TWICE = """
import gc
from coordinator_udf.streaming.shard_function import leave_garbage_to_spark

leave_garbage_to_spark()
frozen = gc.get_freeze_count()
kept = [[] for _ in range(1_000)]
leave_garbage_to_spark()
print(gc.isenabled(), frozen > 1_000, gc.get_freeze_count() == frozen)
"""


def test_sparks_worker_searches_after_each_task_that_ended_well() -> None:
    loop = inspect.getsource(daemon.manager)
    after_task = loop.partition("worker(sock, authenticated)")[2]
    assert "gc.collect()" in after_task


def test_what_is_loaded_is_exempt_once_and_later_objects_are_not() -> None:
    command = [sys.executable, "-c", ASKED_TWICE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]
