"""scripts/setup takes the quickest usable Python."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "scripts" / "setup"

# Stands for a Python that says how many microseconds it takes, if it is usable, and makes no environment.
PYTHON = """#!/bin/sh
case "$*" in
    *ensurepip*) [ "$(basename "$0")" != {without_pip} ] ;;
    -c*) [ {microseconds} -ge 0 ] && echo {microseconds} ;;
    *--without-pip*) echo "$(basename "$0") $*" >&2; mkdir .venv ;;
    *) echo "$(basename "$0") $*" >&2; exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("microseconds", "taken"),
    [
        # Any real one of /usr/bin takes longer than these.
        ({"python3.11": 9, "python3.12": 8, "python3.13": 9}, "python3.12"),
        ({"python3.11": 90, "python3.12": 89, "python3.13": 82}, "python3.11"),
        ({"python3.11": -1, "python3.12": 90, "python3.13": 20}, "python3.13"),
    ],
)
def test_setup_takes_the_quickest_python(tmp_path: Path, microseconds: dict[str, int], taken: str) -> None:
    finished = run_setup(tmp_path, microseconds)
    assert finished.stderr.splitlines() == [f"setup: making .venv with {taken}", f"{taken} -m venv --clear .venv"]
    assert finished.returncode == 1


def test_a_quick_python_that_gives_no_pip_gets_it_from_another_one(tmp_path: Path) -> None:
    finished = run_setup(tmp_path, {"python3.11": 9, "python3.12": 6, "python3.13": 9}, without_pip="python3.12")
    assert finished.stderr.splitlines()[:3] == [
        "setup: making .venv with python3.12",
        "python3.12 -m venv --clear --without-pip .venv",
        "python3.11 -m pip --python .venv/bin/python install --constraint constraints.txt pip",
    ]
    assert finished.returncode == 1


def test_setup_takes_the_python_that_it_is_told(tmp_path: Path) -> None:
    finished = run_setup(tmp_path, {"python3.11": 9, "other": 90}, MUSTER_PYTHON="other")
    assert finished.stderr.startswith("setup: making .venv with other\n")


def test_setup_says_which_pythons_it_looked_for(tmp_path: Path) -> None:
    finished = run_setup(tmp_path, {"other": -1}, MUSTER_PYTHON="other")
    assert finished.returncode == 1
    assert finished.stderr.startswith(
        "setup: no usable Python: looked for other. Python 3.11 or newer with the venv module"
    )


def test_what_cannot_be_set_up_is_said_with_the_status_of_a_wrong_argument() -> None:
    finished = subprocess.run([str(SETUP), "wrong"], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith("setup: 'wrong' is nothing to set up: give 'packages' ")


def run_setup(
    tree: Path, microseconds: dict[str, int], *, without_pip: str = "none", **environment: str
) -> subprocess.CompletedProcess[str]:
    (tree / "scripts").mkdir()
    shutil.copy(SETUP, tree / "scripts")
    for name in ("constraints.txt", "pyproject.toml"):
        (tree / name).touch()
    commands = tree / "bin"
    commands.mkdir()
    for name, took in microseconds.items():
        (commands / name).write_text(PYTHON.format(microseconds=took, without_pip=without_pip))
        (commands / name).chmod(0o755)
    path = f"{commands}:{os.environ['PATH']}"
    command = [str(tree / "scripts" / "setup"), "packages"]
    return subprocess.run(
        command, check=False, env={**os.environ, "PATH": path, **environment}, capture_output=True, text=True
    )
