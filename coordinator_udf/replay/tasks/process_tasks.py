"""Units of work in processes of this machine, where starting Spark would take longer than the work."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_processes(units: Sequence[T], work: Callable[[T], R], say: Callable[[str], None]) -> list[R]:
    """Runs each unit, several at once, and gives the results in the units' order.

    Args:
        work: a function of a module; it and the units are pickled.
        say: gets a line as each unit is done, if there are several.
    """
    workers = min(len(units), len(os.sched_getaffinity(0)))
    if workers <= 1:
        return [work(unit) for unit in units]
    # Forked ones would inherit the threads' locks, but not the threads.
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(workers, context) as pool:
        futures = [pool.submit(work, unit) for unit in units]
        for done, _ in enumerate(as_completed(futures), 1):
            say(f"{done} of {len(units)} logs read")
        return [future.result() for future in futures]
