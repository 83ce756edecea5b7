"""The daemon that forks Python's workers has loaded what they need, and nothing that must not be forked."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

from pyspark import daemon

from coordinator_udf.streaming import worker_daemon
from tests.conftest import ROOT

THREADS = """
from pathlib import Path
from coordinator_udf.streaming import worker_daemon

worker_daemon.preload()
for thread in Path("/proc/self/task").iterdir():
    if thread.name != Path("/proc/self").resolve().name:
        print((thread / "comm").read_text().strip())
"""

#: Threads of allocators, which know how to be forked.
FORKED_SAFELY = {"jemalloc_bg_thd", "mimalloc"}


def test_no_thread_runs_when_workers_are_forked_but_those_of_arrows_allocators() -> None:
    # As Spark starts the daemon: with so many threads for numbers as a task has cores.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", THREADS], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) <= FORKED_SAFELY


def test_sparks_daemon_forks_before_it_loads_and_takes_the_worker_that_it_is_told() -> None:
    assert "importlib.import_module(sys.argv[1])" in inspect.getsource(daemon.worker)
    assert worker_daemon.__name__ == worker_daemon.MODULE
