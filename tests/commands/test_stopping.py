"""A signal that waits for the end of what can't be left half done, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly import some_or_many

ROOT = Path(__file__).resolve().parents[2]
COMMAND = """
import os, signal
from coordinator_udf import stopping

def command():
    with stopping.deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        print("whole", flush=True)
        {ending}
    print("too far")

stopping.run(command)
"""


#: Gets a signal as it is deleted, so that what that raises is lost. A SIGALRM raises it again, which tests block until
#: what it is to interrupt has begun.
_HELD = """
import os, signal, time
from coordinator_udf import stopping

class Held:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep({asleep_s})
"""


def run(script: str, *arguments: str) -> tuple[int, str, str]:
    """The status of a script that stops itself, and what it says."""
    told = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", script, *arguments]
    ran = subprocess.run(words, env=told, capture_output=True, text=True, timeout=120, check=False)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("ending", ["pass", "raise EOFError('of a process that heard of it, too')"])
def test_a_signal_that_waited_ends_the_command_whatever_came_of_what_it_waited_for(ending: str) -> None:
    assert run(COMMAND.format(ending=ending)) == (143, "whole\n", "")


_MAKES_A_DIRECTORY = """
import os, signal, sys, tempfile
from pathlib import Path
from coordinator_udf import stopping

make = tempfile.mkdtemp

def interrupted(*arguments, **options):
    made = make(*arguments, **options)
    os.kill(os.getpid(), signal.SIGTERM)
    return made

tempfile.mkdtemp = interrupted

def command():
    with stopping.temporary_directory("made-", Path(sys.argv[1])):
        print("went on")

stopping.run(command)
"""


def test_a_signal_as_a_temporary_directory_is_made_leaves_none_behind(tmp_path: Path) -> None:
    assert run(_MAKES_A_DIRECTORY, str(tmp_path)) == (128 + signal.SIGTERM, "", "")
    assert list(tmp_path.iterdir()) == []


_DELETES_AN_OBJECT = """
def command():
    Held()
    time.sleep(20)
    print("went on")

stopping.run(command)
"""


def test_a_signal_as_an_object_is_deleted_ends_the_command() -> None:
    assert run(_HELD.format(asleep_s=0.1) + _DELETES_AN_OBJECT) == (143, "", "")


_ASKS_FOR_A_HASH = """
import os, signal, time
import msgspec
from coordinator_udf import stopping

class Kind(type):
    def __hash__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        return 0

class Held(metaclass=Kind):
    pass

def command():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    msgspec.convert({}, Held, dec_hook=lambda kind, value: Held(), strict=False)
    print("went on", flush=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    time.sleep(20)
    print("too far")

stopping.run(command)
"""


def test_a_signal_ends_the_command_also_where_code_in_c_took_it_for_an_error_of_its_own() -> None:
    assert run(_ASKS_FOR_A_HASH) == (143, "went on\n", "")


_WORKS_IN_DUCKDB = """
import os, signal, sys, threading
from pathlib import Path
import duckdb
from coordinator_udf import stopping

def command():
    with stopping.temporary_directory("made-", Path(sys.argv[1])) as made:
        for number in range(3_000):
            Path(made, str(number)).touch()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        duckdb.execute("SET threads = 1")
        duckdb.execute("SELECT count(*) FROM range(3000000) a, range(100000) b WHERE (a.range * b.range) % 7 = 3")
    print("too far")

stopping.run(command)
"""


def test_a_signal_as_duckdb_works_leaves_nothing_temporary(tmp_path: Path) -> None:
    """DuckDB raises an error of its own in place of what the signal raised."""
    assert run(_WORKS_IN_DUCKDB, str(tmp_path)) == (143, "", "")
    assert list(tmp_path.iterdir()) == []


_IS_LOST_BEFORE_WHAT_IS_WHOLE = """
def command():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    Held()
    with stopping.deferred():
        print("table 1", flush=True)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        time.sleep(0.2)
        print("table 2", flush=True)
    time.sleep(20)
    print("too far")

stopping.run(command)
"""


def test_what_is_raised_again_waits_for_the_end_of_what_cannot_be_left_half_done() -> None:
    assert run(_HELD.format(asleep_s=0.05) + _IS_LOST_BEFORE_WHAT_IS_WHOLE) == (143, "table 1\ntable 2\n", "")


_IS_LOST_AT_THE_END = """
many = [{number: [number]} for number in range(500_000)]

def command():
    Held()

stopping.run(command)
"""


def test_a_signal_that_is_lost_at_the_end_has_the_status_of_others() -> None:
    assert run(_HELD.format(asleep_s=0.005) + _IS_LOST_AT_THE_END) == (143, "", "")


_IS_TOLD_TWICE = """
import os, signal, time
# Whoever runs the tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from coordinator_udf import stopping

def command():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(20)
    finally:
        with stopping.temporary_directory("made-"):
            pass
        os.kill(os.getpid(), signal.SIGINT)
        print("too far", flush=True)

stopping.run(command)
"""


def test_a_second_signal_ends_the_command_at_once() -> None:
    assert run(_IS_TOLD_TWICE) == (-signal.SIGINT, "", "")


_IS_A_SERVER = """
import os, signal, threading
from coordinator_udf import stopping

def command():
    stop = threading.Event()
    stopping.call_instead(stop.set)
    with stopping.temporary_directory("made-"):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    print("ends its work:", stop.wait(20))

stopping.run(command)
"""


def test_what_a_server_does_on_a_signal_stays_after_what_cannot_be_left_half_done() -> None:
    assert run(_IS_A_SERVER) == (0, "ends its work: True\n", "")


_IS_DEAF = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from coordinator_udf import stopping

def command():
    with stopping.deferred():
        # As PySpark does when a session begins.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.kill(os.getpid(), signal.SIGINT)
    print("went on")

stopping.run(command)
"""


def test_who_does_not_hear_of_ctrl_c_stays_so() -> None:
    assert run(_IS_DEAF) == (0, "went on\n", "")


#: Waits for another thread. A signal comes at each line, call and return of it in turn, by day at each fourth, in a
#: process of its own: what it raises could leave a lock held that the other thread needs.
_WAITS = """
import faulthandler, os, signal, sys, threading
from concurrent.futures import ThreadPoolExecutor
from coordinator_udf import stopping

stopping._LOOK_S = 0.002

def command(wait, place):
    ended = threading.Event()
    passed = 0

    def told(frame, event, _):
        nonlocal passed
        passed += 1
        if passed == place:
            sys.settrace(None)
            os.kill(os.getpid(), signal.SIGTERM)
        return told

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(ended.wait)
        try:
            sys.settrace(told)
            wait(future, ended)
        finally:
            sys.settrace(None)
            ended.set()

def interrupted(future, ended):
    with stopping.deferred():
        stopping.result_of(future, ended.set)

WAITS = (
    lambda future, _: stopping.result_of(future), lambda future, _: list(stopping.as_completed([future])), interrupted
)
for number, wait in enumerate(WAITS):
    for place in range(1 + number, 200, int(sys.argv[1])):
        child = os.fork()
        if child == 0:
            faulthandler.dump_traceback_later(30, exit=True)
            stopping.run(lambda: command(wait, place))
            os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 143:
            sys.exit(f"wait {number}, place {place}: {status}")
"""


def test_a_signal_at_any_place_of_a_wait_ends_it_and_lets_the_other_thread_go_on() -> None:
    assert run(_WAITS, some_or_many("4", "1")) == (0, "", "")


#: The thread that waits doesn't get the signal itself: it is as if the signal came just before it waits for a lock.
_IS_TOLD_BY_ANOTHER_THREAD = """
import os, signal, threading, time
from concurrent.futures import ThreadPoolExecutor
from coordinator_udf import stopping

def work(ended):
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)
    ended.wait()

def command():
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work, ended)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            stopping.result_of(future)
        finally:
            ended.set()

stopping.run(command)
"""


def test_a_signal_that_another_thread_got_ends_a_wait() -> None:
    assert run(_IS_TOLD_BY_ANOTHER_THREAD) == (143, "", "")
