"""A disk that is full is told of in words."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from coordinator_udf.user_errors import telling_errors

ROOT = Path(__file__).resolve().parents[2]
#: Every byte that is written to it is one too many.
FULL = "/dev/full"


def _by_python() -> None:
    with Path(FULL).open("w") as file:
        file.write("x")


def _by_arrow() -> None:
    with pa.OSFile(FULL, "wb") as file:
        file.write(b"x")


def _by_sqlite() -> None:
    with sqlite3.connect(":memory:") as log:
        log.execute("PRAGMA max_page_count = 1")
        log.execute("CREATE TABLE appends (number INTEGER)")


@pytest.mark.parametrize("write", [_by_python, _by_arrow, _by_sqlite])
def test_whoever_finds_it_full_is_told_what_to_do(
    write: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, telling_errors("replay"):
        write()
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert told.startswith("replay: a disk is full; make room where it writes, or in /")
    assert told.count("\n") == 1


def test_other_errors_keep_their_traces() -> None:
    with pytest.raises(FileNotFoundError), telling_errors("replay"):
        Path("/nowhere/at/all").read_bytes()


def test_a_replay_onto_a_full_disk_says_so_in_one_line(tmp_path: Path) -> None:
    small = f'mount -t tmpfs -o size=64k tmpfs "{tmp_path}"'
    if subprocess.run(["unshare", "-rm", "sh", "-c", small], capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here, so none is small enough")
    command = [sys.executable, "jobs/replay_requests.py", "tests/data/crash.log.gz", "--out", str(tmp_path / "out")]
    mounted = ["unshare", "-rm", "sh", "-c", f'{small} && exec "$@"', "sh", *command]
    ended = subprocess.run(mounted, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("replay: a disk is full; make room where it writes")
