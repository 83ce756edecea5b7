"""Two live drivers on one log, one folder of tables, one checkpoint: the first stopped, the second started."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.tables.delta import WRITE_ORDER
from tests.conftest import ROOT
from tests.nightly import only_at_night
from tests.process_groups import kill_group
from tests.shard.edge import rows_of
from tests.waiting import wait

pytestmark = [pytest.mark.spark, pytest.mark.slow]

START_S = 300


@contextmanager
def driver(root: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(ROOT / "jobs" / "coordinator_stream.py"), "--root", str(root), "--partitions", "2"]
    with (root / f"{name}.log").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    try:
        yield process
    finally:
        kill_group(process)


def rows(root: Path, name: str) -> pa.Table:
    folder = root / "tables" / name
    return DeltaTable(str(folder)).to_pyarrow_table() if folder.is_dir() else pa.table({"request_id": []})


class Client:
    """Commits offsets, each for a group of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.log = EmbeddedLog.create(root / "log", 2)
        self.asked: list[str] = []

    def commit(self) -> None:
        name = f"r{len(self.asked)}"
        self.asked.append(name)
        topics = [{"name": "t", "partitions": [{"partitionIndex": 0, "committedOffset": len(self.asked)}]}]
        body = {"groupId": name, "generationIdOrMemberEpoch": -1, "memberId": "", "topics": topics}
        self.log.append(rows_of("OffsetCommit", 8, body, self.log.now_ms(), name, partitions=2))

    def is_answered(self) -> bool:
        return {*self.asked} <= {*rows(self._root, "group_responses").column("request_id").to_pylist()}


def stop_without_the_log(stop: Callable[[int, int], None], pid: int, log: Path) -> None:
    """Stops a driver at a moment when it isn't writing to the log: nobody else could, as long as it stands still."""

    def is_free() -> bool:
        stop(pid, signal.SIGSTOP)
        wait(lambda: states(pid) == {"T"}, "it stands still")
        with closing(sqlite3.connect(log, timeout=1, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                stop(pid, signal.SIGCONT)
                return False
            connection.execute("ROLLBACK")
        return True

    wait(is_free, "the driver stands still and nobody writes to the log")


def states(pid: int) -> set[str]:
    """In which states a process's threads are, as in /proc."""
    return {path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")}


#: Whether all processes of the driver are stopped, or only Python's.
_STOPPED = {"all processes": True, "only Python's": False}


@only_at_night("test_lease.py has the same of a holder of the lease that is no driver")
@pytest.mark.parametrize("is_whole", _STOPPED.values(), ids=_STOPPED)
def test_a_driver_that_was_stopped_and_taken_over_from_ends(tmp_path: Path, is_whole: bool) -> None:
    client = Client(tmp_path)
    client.commit()

    def story() -> str:
        return "\n".join(path.read_text()[-3_000:] for path in sorted(tmp_path.glob("*.log")))

    with ExitStack() as both:
        first = both.enter_context(driver(tmp_path, "first"))
        wait(client.is_answered, "the first driver answers", story, START_S)
        # So that it has something under way, wherever it is.
        for _ in range(5):
            client.commit()
        stop = os.killpg if is_whole else os.kill
        stop_without_the_log(stop, first.pid, tmp_path / "log")
        second = both.enter_context(driver(tmp_path, "second"))
        client.commit()
        wait(client.is_answered, "the second driver answers", story, START_S)
        assert "has been silent for 10 s" in (tmp_path / "second.log").read_text()
        stop(first.pid, signal.SIGCONT)
        for _ in range(3):
            client.commit()
        wait(lambda: first.poll() is not None, "the first driver ends", story, START_S)
        assert first.returncode == 1, story()
        assert "coordinator: another coordinator has taken over the table" in (tmp_path / "first.log").read_text()
        wait(client.is_answered, "the second driver goes on", story, START_S)
        assert second.poll() is None
    for name in WRITE_ORDER:
        ids = rows(tmp_path, name).column("request_id" if name != "group_transitions" else "cause_request_id")
        assert len(ids) == len(ids.unique()), f"{name} has each decision once"
    offsets = rows(tmp_path, "consumer_offsets").column("group_id").to_pylist()
    assert sorted(offsets) == sorted(client.asked)
