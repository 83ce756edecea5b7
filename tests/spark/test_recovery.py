"""A lost checkpoint: groups, members, assignments and offsets come back from consumer_offsets."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.group_configs import group_config_rows
from coordinator_udf.log.rows import control_rows
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.streaming.lease import StartError
from coordinator_udf.streaming.recovery import RecoveryError
from tests.groups.bodies import consumer_heartbeat
from tests.nightly import only_at_night
from tests.shard.edge import rows_of
from tests.spark.conftest import Run, Scenario, assert_same_tables, read_tables
from tests.spark.test_kills import Death, drivers, wait_for_death
from tests.spark.test_stream import setting

pytestmark = pytest.mark.spark

SETTINGS = Settings.from_kafka({"group.initial.rebalance.delay.ms": 0})
START_MS = 1_700_000_000_000


#: What a client says how often members of group k are to beat.
SLOW_MS = 7_000
JOIN_K = consumer_heartbeat("k", "k-1", 0, rebalanceTimeoutMs=60_000, subscribedTopicNames=["t"], topicPartitions=[])


def give_group_k_a_setting(log: EmbeddedLog, log_ts: int) -> None:
    configs = {"k": {"consumer.heartbeat.interval.ms": str(SLOW_MS)}}
    assert log.change_group_configs({}, configs, group_config_rows(log.partitions, log_ts, configs))


class Client:
    """Appends requests at the times that a test says."""

    def __init__(self, log: EmbeddedLog) -> None:
        self.log = log
        # Its times are made up: a gap between them is none in which nobody could append.
        log.downtime_after_ms = None
        self.asked = 0

    def ask(self, api: str, version: int, ms: int, **body: Any) -> str:
        self.asked += 1
        request_id = f"r{self.asked}"
        more: dict[str, Any] = {"partitions": self.log.partitions, "proposed_member_id": f"m-{self.asked}"}
        self.log.append(rows_of(api, version, body, START_MS + ms, request_id, **more))
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

    def be_stable(self) -> dict[str, Any]:
        """Joins and syncs in the first 20 ms; returns what the member's later requests say of it."""
        self.join(0)
        self.tick(10)
        member = {"groupId": "g", "generationId": 1, "memberId": "m-1"}
        self.ask("SyncGroup", 3, 20, **member, assignments=[{"memberId": "m-1", "assignment": "AQID"}])
        return member

    def tick(self, ms: int) -> None:
        self.log.append(control_rows(partitions=self.log.partitions, log_ts=START_MS + ms, api="Tick"))


def answers(tables: Path) -> dict[str, dict[str, Any]]:
    rows = read_tables(tables)["group_responses"].to_pylist()
    ids = [row["request_id"] for row in rows]
    assert len(ids) == len(set(ids)), "a request was answered twice"
    return {row["request_id"]: json.loads(row["body"]) | {"ts": row["ts"]} for row in rows}


def test_everything_comes_back_and_nothing_stays_unanswered(tmp_path: Path, run: Run) -> None:
    client = Client(EmbeddedLog.create(tmp_path / "log", 2))
    member = client.be_stable()
    topics = [{"name": "t", "partitions": [{"partitionIndex": 0, "committedOffset": 42, "committedMetadata": "x"}]}]
    commit = {"groupId": "g", "generationIdOrMemberEpoch": 1, "memberId": "m-1", "topics": topics}
    client.ask("OffsetCommit", 8, 30, **commit)
    give_group_k_a_setting(client.log, START_MS + 35)
    joined = client.ask("ConsumerGroupHeartbeat", 1, 36, **JOIN_K)
    run(SETTINGS)
    epoch = answers(tmp_path / "tables")[joined]["memberEpoch"]
    # The checkpoint is lost while a heartbeat and a commit wait in the log.
    waiting = client.ask("Heartbeat", 3, 40, **member), client.ask("OffsetCommit", 8, 40, **commit)
    shutil.rmtree(tmp_path / "checkpoint")
    run(SETTINGS, recover=True)
    with pytest.raises(RecoveryError, match="start without --recover-from-offsets"):
        run(SETTINGS, recover=True)
    sync = client.ask("SyncGroup", 3, 100, **member)
    heartbeat = client.ask("Heartbeat", 3, 5_000, **member)
    fetch = client.ask("OffsetFetch", 5, 5_001, groupId="g", topics=[{"name": "t", "partitionIndexes": [0]}])
    beat = client.ask("ConsumerGroupHeartbeat", 1, 5_002, **consumer_heartbeat("k", "k-1", epoch))
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
    intervals_ms = [said[request]["heartbeatIntervalMs"] for request in (joined, beat)]
    assert intervals_ms == [SLOW_MS] * 2, "a setting that a client gave a group"
    tables = read_tables(tmp_path / "tables")
    for name, key in (("group_responses", "seq"), ("group_transitions", "seq"), ("consumer_offsets", "offset")):
        numbers = [(row["partition"], row[key]) for row in tables[name].to_pylist()]
        assert len(numbers) == len(set(numbers)), f"{name} has a number twice"


def test_a_load_in_portions_answers_each_request_once_while_clients_go_on(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, coordinator_spark: SparkSession
) -> None:
    # All the rows together are more than the driver may collect, though they are few.
    monkeypatch.setattr("coordinator_udf.streaming.recovery.PORTION_BYTES", 12_000)
    client = Client(EmbeddedLog.create(tmp_path / "log", 2))
    groups = [f"g{number}" for number in range(8)]

    def commit(group: str, offset: int) -> str:
        partitions = [{"partitionIndex": 0, "committedOffset": offset, "committedMetadata": "x" * 4_000}]
        body = {"groupId": group, "generationIdOrMemberEpoch": -1, "memberId": ""}
        return client.ask("OffsetCommit", 8, 10, **body, topics=[{"name": "t", "partitions": partitions}])

    for number, group in enumerate(groups):
        commit(group, number)
    run(SETTINGS)
    shutil.rmtree(tmp_path / "checkpoint")
    done = threading.Event()
    asked = [commit(group, 100) for group in groups]
    keep_asking = threading.Thread(target=keep_on, args=(done, lambda: asked.append(commit("g0", 200))))
    keep_asking.start()
    try:
        with setting(coordinator_spark, "spark.driver.maxResultSize", "40k"):
            run(SETTINGS, recover=True, max_rows=8)
    finally:
        done.set()
        keep_asking.join()
    fetches = [
        client.ask("OffsetFetch", 5, 20, groupId=group, topics=[{"name": "t", "partitionIndexes": [0]}])
        for group in groups[1:]
    ]
    run(SETTINGS)
    said = answers(tmp_path / "tables")
    assert set(asked) <= set(said), "each request has its answer"
    errors = {said[request]["topics"][0]["partitions"][0]["errorCode"] for request in asked[: len(groups)]}
    assert errors == {14}, "COORDINATOR_LOAD_IN_PROGRESS"
    found = [said[fetch]["topics"][0]["partitions"][0]["committedOffset"] for fetch in fetches]
    assert found == list(range(1, 8))
    loads = [
        append for append in client.log.read(0, client.log.end()) if "LoadGroup" in append.column("api").to_pylist()
    ]
    assert len(loads) > 3
    assert max(append.num_rows for append in loads) <= 3


def keep_on(done: threading.Event, ask: Callable[[], object]) -> None:
    # Some while each portion is loaded. Fifty a second would only be many micro-batches more, the slower the machine.
    while not done.wait(0.2):
        ask()


@pytest.mark.slow
@only_at_night("test_kills.py kills, and the tests of this file load without a kill")
def test_kills_during_a_recovery_change_nothing(
    coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario, run: Run
) -> None:
    half = len(sample.rows) // 2
    log = EmbeddedLog.create(tmp_path / "log", sample.partitions, clock_skew_max_ms=None)
    sample.append(log, [3, 1, 2], stop=half)
    give_group_k_a_setting(log, sample.rows[half - 1]["log_ts"])
    run(sample.settings)
    sample.append(log, [3, 1, 2], start=half)
    log.close()
    shutil.rmtree(tmp_path / "checkpoint")
    killed = tmp_path / "killed"
    shutil.copytree(tmp_path, killed, ignore=lambda folder, _: ["killed"] if folder == str(tmp_path) else [])
    run(sample.settings, recover=True)
    places = {name: str(killed / name) for name in ("log", "tables", "checkpoint")}

    # What is started again after the checkpoint was told where to start may be so with or without the option.
    deaths = [
        Death("appending", 2, recover=True),
        Death("appended", recover=True),
        Death("noted", recover=True),
        Death("commit", recover=True),
        Death("write", 1),
    ]
    with closing(drivers(killed, sample, deaths)) as running:
        for death, driver in running:
            wait_for_death(killed, driver)
            if death.point == "appended":
                with pytest.raises(StartError, match="start with --recover-from-offsets"):
                    run(sample.settings, **places)
    run(sample.settings, **places)
    assert_same_tables(coordinator_spark, killed / "tables", read_tables(tmp_path / "tables"))
    with closing(EmbeddedLog.open(killed / "log")) as log:
        joined = Client(log).ask("ConsumerGroupHeartbeat", 1, (log.newest_log_ts() or 0) - START_MS, **JOIN_K)
    run(sample.settings, **places)
    assert answers(killed / "tables")[joined]["heartbeatIntervalMs"] == SLOW_MS


def test_members_of_a_coordinator_that_was_down_do_not_expire(tmp_path: Path, run: Run) -> None:
    client = Client(EmbeddedLog.create(tmp_path / "log", 2))
    member = client.be_stable()
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
