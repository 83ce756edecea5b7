"""A lost checkpoint: groups, members, assignments and offsets come back from consumer_offsets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.log_rows import control_rows, request_rows
from coordinator_udf.protocol.settings import Settings
from coordinator_udf.streaming.embedded_log import EmbeddedLog
from coordinator_udf.streaming.recovery import RecoveryError
from tests.spark.conftest import Run, read_tables

pytestmark = pytest.mark.spark

SETTINGS = Settings.from_kafka({"group.initial.rebalance.delay.ms": 0})
START_MS = 1_700_000_000_000


class Client:
    """Appends requests at the times that a test says."""

    def __init__(self, log: EmbeddedLog) -> None:
        self.log = log
        self.asked = 0

    def ask(self, api: str, version: int, ms: int, **body: Any) -> str:
        self.asked += 1
        request_id = f"r{self.asked}"
        rows = request_rows(
            partitions=self.log.partitions,
            log_ts=START_MS + ms,
            request_id=request_id,
            api=api,
            api_version=version,
            client_id="c",
            client_host="/10.0.0.1",
            body=body,
            proposed_member_id=f"m-{self.asked}",
        )
        self.log.append(rows)
        return request_id

    def join(self, ms: int, member_id: str = "") -> str:
        return self.ask(
            "JoinGroup",
            3,
            ms,
            groupId="g",
            sessionTimeoutMs=10_000,
            rebalanceTimeoutMs=20_000,
            memberId=member_id,
            protocolType="x",
            protocols=[{"name": "p", "metadata": "AA=="}],
        )

    def tick(self, ms: int) -> None:
        self.log.append(control_rows(partitions=self.log.partitions, log_ts=START_MS + ms, api="Tick"))


def answers(tables: Path) -> dict[str, dict[str, Any]]:
    rows = read_tables(tables)["group_responses"].to_pylist()
    ids = [row["request_id"] for row in rows]
    assert len(ids) == len(set(ids)), "a request was answered twice"
    return {row["request_id"]: json.loads(row["body"]) | {"ts": row["ts"]} for row in rows}


def test_everything_comes_back_and_nothing_stays_unanswered(tmp_path: Path, run: Run) -> None:
    client = Client(EmbeddedLog.create(tmp_path / "log", 2))
    client.join(0)
    client.tick(10)
    member = {"groupId": "g", "generationId": 1, "memberId": "m-1"}
    client.ask("SyncGroup", 3, 20, **member, assignments=[{"memberId": "m-1", "assignment": "AQID"}])
    topics = [{"name": "t", "partitions": [{"partitionIndex": 0, "committedOffset": 42, "committedMetadata": "x"}]}]
    commit = {"groupId": "g", "generationIdOrMemberEpoch": 1, "memberId": "m-1", "topics": topics}
    client.ask("OffsetCommit", 8, 30, **commit)
    run(SETTINGS)
    # The checkpoint is lost while a heartbeat and a commit wait in the log.
    waiting = client.ask("Heartbeat", 3, 40, **member), client.ask("OffsetCommit", 8, 40, **commit)
    shutil.rmtree(tmp_path / "checkpoint")
    run(SETTINGS, recover=True)
    with pytest.raises(RecoveryError, match="start without --recover-from-offsets"):
        run(SETTINGS, recover=True)
    sync = client.ask("SyncGroup", 3, 100, **member)
    heartbeat = client.ask("Heartbeat", 3, 5_000, **member)
    fetch = client.ask("OffsetFetch", 5, 5_001, groupId="g", topics=[{"name": "t", "partitionIndexes": [0]}])
    client.tick(9_999)
    still = client.ask("Heartbeat", 3, 14_000, **member)
    client.tick(30_000)
    gone = client.ask("Heartbeat", 3, 30_001, **member)
    run(SETTINGS)

    said = answers(tmp_path / "tables")
    assert said[waiting[0]]["errorCode"] == 0, "a heartbeat while the group loads"
    assert said[waiting[1]]["topics"][0]["partitions"][0]["errorCode"] == 14, "COORDINATOR_LOAD_IN_PROGRESS"
    assert said[sync]["assignment"] == "AQID"
    assert said[fetch]["topics"][0]["partitions"][0]["committedOffset"] == 42
    assert [said[request]["errorCode"] for request in (heartbeat, still, gone)] == [0, 0, 25]
    tables = read_tables(tmp_path / "tables")
    for name, key in (("group_responses", "seq"), ("group_transitions", "seq"), ("consumer_offsets", "offset")):
        numbers = [(row["partition"], row[key]) for row in tables[name].to_pylist()]
        assert len(numbers) == len(set(numbers)), f"{name} has a number twice"


def test_members_of_a_coordinator_that_was_down_do_not_expire(tmp_path: Path, run: Run) -> None:
    client = Client(EmbeddedLog.create(tmp_path / "log", 2))
    client.join(0)
    client.tick(10)
    member = {"groupId": "g", "generationId": 1, "memberId": "m-1"}
    client.ask("SyncGroup", 3, 20, **member, assignments=[{"memberId": "m-1", "assignment": "AQID"}])
    run(SETTINGS)
    # The coordinator is down for a minute, six sessions long; the member goes on beating, and then falls silent.
    beats = [client.ask("Heartbeat", 3, ms, **member) for ms in range(3_000, 60_000, 3_000)]
    client.tick(75_000)
    run(SETTINGS)
    said = answers(tmp_path / "tables")
    assert [said[beat]["errorCode"] for beat in beats] == [0] * len(beats)
    expired = read_tables(tmp_path / "tables")["group_transitions"].to_pylist()[-1]
    assert (expired["to_state"], expired["cause_timer"]) == ("Empty", "session")
    assert expired["ts"] == START_MS + 57_000 + 10_000, "at its own deadline, though it was noticed later"


def test_tables_without_their_checkpoint_are_not_written_over(tmp_path: Path, run: Run) -> None:
    client = Client(EmbeddedLog.create(tmp_path / "log", 1))
    client.join(0)
    run(SETTINGS)
    before = read_tables(tmp_path / "tables")
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(Exception, match="recover-from-offsets"):
        run(SETTINGS)
    assert read_tables(tmp_path / "tables") == before
