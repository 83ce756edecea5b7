"""Processes of a replay end with it, and no others do."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import pytest

from coordinator_udf.replay.tasks.process_tasks import process_pool


def test_what_fails_ends_its_own_processes_alone() -> None:
    context = multiprocessing.get_context("forkserver")
    is_over = context.Event()
    of_the_caller = context.Process(target=is_over.wait)
    of_the_caller.start()
    unfinished: list[Future[None]] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(unfinished)
    assert isinstance(unfinished[0].exception(), BrokenProcessPool)
    is_over.set()
    of_the_caller.join()
    assert of_the_caller.exitcode == 0


def interrupted(begun: list[Future[None]]) -> None:
    with process_pool(2) as pool:
        begun.append(pool.submit(time.sleep, 3_600))
        raise KeyboardInterrupt
