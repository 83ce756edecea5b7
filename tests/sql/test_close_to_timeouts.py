"""Findings of members that nearly missed a timeout, and of timeouts that members don't share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from tests.conftest import SAMPLE_LOG
from tests.replay.broker_log import KafkaLog, one_member

NOT_COORDINATOR = 16
REBALANCE_IN_PROGRESS = 27


def findings(path: Path, like: str) -> list[dict[str, Any]]:
    (report,) = replay(None, ReplayRequest((path,), path.parent / "tables", ReplayOptions(), overwrite=True), print)
    assert report.failure is None
    assert not report.different
    views = ViewsInProcess(str(path.parent / "tables"))
    views.make(views_named("SELECT * FROM findings"))
    found = views.ask(f"SELECT * FROM findings WHERE finding LIKE '{like}%' ORDER BY group_id")
    for each in found:
        views.make(views_named(each["evidence"]))
        each["rows"] = views.ask(each["evidence"])
    return found


@pytest.mark.parametrize(("silence_ms", "is_found"), [(5_500, False), (7_300, True), (9_999, True)])
def test_a_member_that_was_silent_for_most_of_its_session_is_named(
    silence_ms: int, is_found: bool, tmp_path: Path
) -> None:
    log = one_member(KafkaLog())
    log.heartbeat("m-1", arrives=4_000 + silence_ms, connection="a")
    found = findings(log.write(tmp_path / "request.log"), "silent")
    assert bool(found) is is_found
    for each in found:
        assert (each["times"], each["setting"]) == (1, "session.timeout.ms")
        shown_s = round(silence_ms / 1000, 1)
        assert each["text"] == (
            f"a lived on after up to {shown_s} s of silence; whoever is silent for 10.0 s, its session, is put out"
        )
        before, after = each["rows"]
        assert after["log_ts"] - before["log_ts"] == silence_ms


def test_a_member_whose_coordinator_was_away_was_not_silent(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    log.heartbeat("m-2", NOT_COORDINATOR, arrives=9_000, connection="b")
    log.heartbeat("m-1", arrives=11_500, connection="a")
    assert findings(log.write(tmp_path / "request.log"), "silent") == []


@pytest.mark.parametrize(("joins_ms", "is_found"), [(30_000, False), (50_000, True)])
def test_a_member_that_joins_again_close_to_the_rebalance_timeout_is_named(
    joins_ms: int, is_found: bool, tmp_path: Path
) -> None:
    log = one_member(KafkaLog())
    log.join("", "m-2", 79, arrives=4_100, connection="b")
    log.join("m-2", "m-2", generation=2, arrives=4_110, takes=joins_ms - 4_109, connection="b")
    for at_ms in range(7_000, joins_ms, 3_000):
        log.heartbeat("m-1", REBALANCE_IN_PROGRESS, arrives=at_ms, connection="a")
    log.join("m-1", "m-1", generation=2, arrives=joins_ms, takes=1, connection="a")
    _both_in_the_generation(log)
    found = findings(log.write(tmp_path / "request.log"), "joined again")
    assert bool(found) is is_found
    for each in found:
        assert (each["times"], each["setting"]) == (1, "max.poll.interval.ms")
        assert each["text"].startswith("a joined again after up to 45.9 s; whoever takes longer than 60.0 s")
        assert [row["client_id"] for row in each["rows"]] == ["a"]


def _both_in_the_generation(log: KafkaLog) -> None:
    """Lets the last two answers be of one generation: the first member leads, and is told of both."""
    metadata = "AAEAAAABAAJ0Mf////8AAAAA"
    members = ", ".join(
        f'{{"memberId": "{name}", "groupInstanceId": null, "metadata": "{metadata}"}}' for name in ("m-1", "m-2")
    )
    follower, leader = (place for place, line in enumerate(log.lines) if '"generationId": 2, "protocolName"' in line)
    head, _, rest = log.lines[follower].partition('"members": [')
    log.lines[follower] = head.replace('"leader": "m-2"', '"leader": "m-1"') + '"members": []' + rest.partition("]")[2]
    head, _, rest = log.lines[leader].partition('"members": [')
    log.lines[leader] = f'{head}"members": [{members}]' + rest.partition("]")[2]


def test_members_with_other_rebalance_timeouts_are_told(tmp_path: Path) -> None:
    path = tmp_path / "crash.log.gz"
    path.write_bytes(SAMPLE_LOG.read_bytes())
    (found,) = findings(path, "mixed rebalance")
    assert (found["group_id"], found["times"], found["setting"]) == ("crash-b", 2, "max.poll.interval.ms")
    assert found["text"] == (
        "members have rebalance timeouts of 8000 ms (aiokafka-4, aiokafka-5), 300000 ms (kafkapython-6), "
        "and all wait for as long as the longest"
    )
