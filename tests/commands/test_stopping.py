"""A signal that waits for the end of what can't be left half done, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
import os, signal, time
from coordinator_udf import stopping

class Held:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)

def command():
    Held()
    time.sleep(20)
    print("went on")

stopping.run(command)
"""


def test_a_signal_as_an_object_is_deleted_ends_the_command() -> None:
    assert run(_DELETES_AN_OBJECT) == (143, "", "")


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
    msgspec.convert({}, Held, dec_hook=lambda kind, value: Held(), strict=False)
    print("went on", flush=True)
    time.sleep(20)
    print("too far")

stopping.run(command)
"""


def test_a_signal_ends_the_command_also_where_code_in_c_took_it_for_an_error_of_its_own() -> None:
    assert run(_ASKS_FOR_A_HASH) == (143, "went on\n", "")
