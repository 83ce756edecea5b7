"""`batch`: what a micro-batch takes of the driver, by its size, collected or written by executors."""

from __future__ import annotations

import shutil
from typing import Final

import msgspec

from scripts.benchmarks import request_log
from scripts.benchmarks.job import running
from scripts.benchmarks.large_batch_job import Taken
from scripts.benchmarks.results import Outcome
from scripts.benchmarks.running import Options, say

#: Two executors with a core and a gigabyte each, processes of their own.
MASTER: Final = "local-cluster[2,1,1024]"
_SIZES: Final = (10_000, 100_000, 1_000_000)
_MEMBERS: Final = 10
_PARTITIONS: Final = 8
#: Requests of a group.
_REQUESTS: Final = 1_000
_TIMEOUT_S: Final = 600.0
#: From how many rows on a batch is large: never, always.
_WAYS: Final = {"driver": 0, "executors": 1}


def run(options: Options) -> Outcome:
    """Measures time, CPU time and memory of the driver, by either way, and their ratios."""
    outcome = Outcome()
    for full in _SIZES:
        size = options.sized(full, 1_000)
        taken = {way: _taken(options, size, way) for way in _WAYS}
        for way, one in taken.items():
            name = f"{size:,} requests, {way}"
            outcome.add(f"{name}: batch", one.ms["triggerExecution"], "ms", "lower")
            outcome.add(f"{name}: CPU of the driver", one.cpu_s, "s", "lower")
            outcome.add(f"{name}: peak of the driver's Python", one.python_bytes / 2**20, "MiB", "lower")
            outcome.add(f"{name}: growth of it", one.python_grown_bytes / 2**20, "MiB", "lower")
            outcome.add(f"{name}: peak of its JVM", one.java_bytes / 2**20, "MiB", "lower")
            outcome.add(f"{name}: growth of that", one.java_grown_bytes / 2**20, "MiB", "lower")
        ratio = taken["executors"].ms["triggerExecution"] / taken["driver"].ms["triggerExecution"]
        outcome.add(f"{size:,} requests: batch, executors to driver", ratio, "", "lower")
    outcome.notes.append(
        f"one micro-batch of a Delta table, groups of {_MEMBERS} members, on {MASTER}; a batch of {_SIZES[0]:,} went "
        "before"
    )
    return outcome


def _taken(options: Options, size: int, way: str) -> Taken:
    say(f"a micro-batch of {size:,} requests, written by the {way}")
    log, _ = request_log.generated(options.data, size, max(size // _REQUESTS, 1), _MEMBERS, _PARTITIONS)
    least = options.sized(_SIZES[0], 1_000)
    warm_up, _ = request_log.generated(options.data, least, max(least // _REQUESTS, 1), _MEMBERS, _PARTITIONS)
    root = options.data / "batch"
    shutil.rmtree(root, ignore_errors=True)
    places = ("--root", str(root), "--log", str(log), "--warm-up", str(warm_up), "--partitions", str(_PARTITIONS))
    arguments = [*places, "--master", MASTER, "--large-batch", str(_WAYS[way])]
    with running("scripts/benchmarks/large_batch_job.py", arguments, options.data / "batch.log") as job:
        job.wait(_TIMEOUT_S)
    taken = msgspec.json.decode((root / "taken").read_bytes(), type=Taken)
    say(f"{taken}")
    return taken
