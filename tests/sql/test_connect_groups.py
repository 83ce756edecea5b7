"""Groups of Connect's workers in the views: connectors and tasks, and what their leader told them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from tests.conftest import shared

WHOLE_UNTIL = "2026-11-21 02:52:45"
MOVED = "SELECT * FROM assignment_history WHERE group_id = 'connect-cluster' AND topic = 'sink' AND partition = -1"


@pytest.fixture(scope="module")
def log() -> list[bytes]:
    return gzip.decompress(shared("broker", "logs-dev", "connect.log.gz").read_bytes()).splitlines(keepends=True)


def views_on(lines: list[bytes], folder: Path) -> ViewsInProcess:
    path = folder / "connect.log"
    path.write_bytes(b"".join(lines))
    replay(None, ReplayRequest((path,), folder / "tables", ReplayOptions()), print)
    views = ViewsInProcess(str(folder / "tables"))
    views.make(views_named("members assignment_history"))
    return views


def test_workers_have_connectors_and_tasks(log: list[bytes], tmp_path: Path) -> None:
    until = [line for line in log if line[1:20].decode() < WHOLE_UNTIL]
    views = views_on(until, tmp_path)
    workers = views.ask("SELECT * FROM members WHERE group_id = 'connect-cluster' ORDER BY client_id")
    assert [worker["assignment"] for worker in workers] == [
        {"src": [-1, 0], "sink": [2]}, {"sink": [-1, 0, 1]},
    ]  # fmt: skip
    details = [json.loads(worker["details"]) for worker in workers]
    assert {each["leader_url"] for each in details} == {"http://127.0.0.1:28083/"}
    assert [each["url"] for each in details] == ["http://127.0.0.1:28083/", "http://127.0.0.1:28084/"]
    assert [worker["malformed"] for worker in workers] == [None, None]


def test_a_connector_of_a_dead_worker_waits_for_the_delay(log: list[bytes], tmp_path: Path) -> None:
    first, second = views_on(log, tmp_path).ask(f"{MOVED} ORDER BY since")
    assert (first["client_id"][-1], second["client_id"][-1]) == ("4", "5")
    assert first["on_paper"]
    # scheduled.rebalance.max.delay.ms is 4 s.
    assert 4000 <= second["idle_before_ms"] < 4500
