"""Processes of a replay end with it, and no others do."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import pytest

from coordinator_udf.replay.tasks.process_tasks import process_pool
from tests.conftest import ROOT
from tests.waiting import PATIENCE_S


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


_FAILS_WHILE_WORK_WAITS = """
import time
from coordinator_udf.replay.tasks.process_tasks import process_pool

def main():
    with process_pool(2) as pool:
        for _ in range(8):
            pool.submit(time.sleep, 3_600)
            # More than a pipe holds: the thread that writes it waits for a process that reads.
            pool.submit(len, bytes(1_000_000))
        time.sleep(2)
        raise SystemExit(3)

if __name__ == "__main__":
    main()
"""


def test_what_fails_while_work_waits_that_no_pipe_holds_ends() -> None:
    command = [sys.executable, "-c", _FAILS_WHILE_WORK_WAITS]
    assert subprocess.run(command, cwd=ROOT, timeout=PATIENCE_S, check=False).returncode == 3


_IS_TOLD_AS_PROCESSES_BEGIN = """
import os, signal
from multiprocessing import util
from coordinator_udf import stopping
from coordinator_udf.replay.tasks.process_tasks import process_pool, submit

start = util.spawnv_passfds

def told_at_once(*arguments):
    number = start(*arguments)
    os.kill(number, signal.SIGINT)
    return number

util.spawnv_passfds = told_at_once

def command():
    with process_pool(2) as pool:
        print(submit(pool, abs, -3).result())

stopping.run(command)
"""


def test_ctrl_c_as_processes_begin_makes_none_of_them_say_anything() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _IS_TOLD_AS_PROCESSES_BEGIN],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "3\n", "")
