"""What is told to those who watch: the gateway's counters, the coordinator's, and the endpoint."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from coordinator_udf.monitoring import JsonFormatter, MonitoringEndpoint
from coordinator_udf.streaming.metrics import CoordinatorMetrics
from coordinator_udf.tables.delta import OutputTables
from coordinator_udf.user_errors import UserError
from tests.gateway.in_process import Front, topics
from tests.gateway.wire import HEARTBEAT, Wire, join
from tests.groups.bodies import consumer_heartbeat
from tests.waiting import wait

KAFKA = "kafka_server_group_coordinator_metrics"


def test_requests_and_errors_are_counted_as_kafka_does(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    with Front(tmp_path / "log.db", topics(t1=2), metrics=registry) as front:
        with Wire(front.gateway.port) as wire:
            for _ in range(3):
                assert wire.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == 25
            assert wire.ask("JoinGroup", 5, join())["errorCode"] == 79
            assert registry.get_sample_value("kafka_server_socketservermetrics_connection_count") == 1
        counted = registry.get_sample_value
        labels = {"request": "Heartbeat", "version": "4"}
        assert counted("kafka_network_requestmetrics_requests_total", labels) == 3
        errors = {"request": "Heartbeat", "error": "UNKNOWN_MEMBER_ID"}
        assert counted("kafka_network_requestmetrics_errors_total", errors) == 3
        assert counted("kafka_network_requestmetrics_totaltime_seconds_count", {"request": "JoinGroup"}) == 1
        assert counted("muster_gateway_unanswered") == 0
        # An answer may be there before the thread that appended has said that it did.
        wait(lambda: (counted("muster_gateway_rows_total") or 0) >= 4, "the rows are counted")


class Watched:
    """The metrics of a coordinator, and the tables that its batches are written to."""

    def __init__(self, tables: Path) -> None:
        self._tables = OutputTables(str(tables))
        self._batches = 0
        self.registry = CollectorRegistry()
        self._metrics = CoordinatorMetrics(self.registry, str(tables))

    def take(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables.write(tables, "query", self._batches)
        self._batches += 1
        self._metrics.take(tables)

    def groups(self) -> dict[tuple[str, str], float]:
        return {
            (sample.labels["protocol"], sample.labels["state"]): sample.value
            for metric in self.registry.collect()
            if metric.name == f"{KAFKA}_group_count"
            for sample in metric.samples
        }

    def count(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"{KAFKA}_{name}")

    def offsets(self) -> float | None:
        return self.registry.get_sample_value("kafka_coordinator_group_groupmetadatamanager_numoffsets")


def commit_as(wire: Wire, group: str, partitions: Sequence[int], **member: object) -> None:
    asked = [
        {"partitionIndex": i, "committedOffset": 7, "committedLeaderEpoch": -1, "committedMetadata": ""}
        for i in partitions
    ]
    nobody = {"memberId": "", "generationIdOrMemberEpoch": -1, "groupInstanceId": None}
    body = {"groupId": group, **nobody, **member, "topics": [{"name": "t1", "partitions": asked}]}
    for told in wire.ask("OffsetCommit", 8, body)["topics"][0]["partitions"]:
        assert told["errorCode"] == 0


def test_a_coordinator_counts_what_its_batches_decided(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "tables")
    with Front(tmp_path / "log.db", topics(t1=4), written=watched.take) as front, Wire(front.gateway.port) as wire:
        member = wire.ask("JoinGroup", 5, join())["memberId"]
        joined = wire.ask("JoinGroup", 5, join(member_id=member))
        me = {**HEARTBEAT, "generationId": joined["generationId"], "memberId": member}
        wire.ask("SyncGroup", 3, {**me, "assignments": [{"memberId": member, "assignment": ""}]})
        commit_as(wire, "g", [0, 1], memberId=member, generationIdOrMemberEpoch=1)
        assert watched.count("group_completed_rebalance_total") == 1
        joins = {"rebalanceTimeoutMs": 5_000, "subscribedTopicNames": ["t1"], "topicPartitions": []}
        wire.ask("ConsumerGroupHeartbeat", 1, consumer_heartbeat("new", "m1", 0, **joins))
        wire.ask("ConsumerGroupHeartbeat", 1, consumer_heartbeat("new", "m2", 0, **joins))
        # Kafka doesn't count the epoch of a member that leaves.
        wire.ask("ConsumerGroupHeartbeat", 1, consumer_heartbeat("new", "m2", -1))
        for partitions in ([0, 1, 2, 3], [0, 1]):
            commit_as(wire, "simple", partitions)
        doomed = {"name": "t1", "partitions": [{"partitionIndex": 0}]}
        assert wire.ask("OffsetDelete", 0, {"groupId": "simple", "topics": [doomed]})["errorCode"] == 0
        groups = {("classic", "Stable"): 1, ("classic", "Empty"): 1, ("consumer", "Assigning"): 1}
        assert watched.groups() == groups
        assert watched.offsets() == 5
        assert Watched(tmp_path / "tables").groups() == groups
        assert Watched(tmp_path / "tables").offsets() == 5
        wire.ask("DeleteGroups", 2, {"groupsNames": ["simple"]})
        assert watched.offsets() == 2
        front.gateway.set_topics(topics(t2=1))
        wait(lambda: watched.offsets() == 0, "the offsets of the topic are gone")
    assert ("classic", "Empty") not in watched.groups()
    counted = {
        "consumer_group_rebalance_total": 2,
        "offset_commit_total": 8,
        "offset_deletion_total": 1,
        # The two of the topic that is gone, which no request ended either.
        "offset_expiration_total": 2,
    }
    assert {name: watched.count(name) for name in counted} == counted
    assert watched.registry.get_sample_value("muster_offset_tombstones_total") == 6


def test_offsets_that_a_timer_ended_have_expired(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "tables")
    settings = {"offsets.retention.check.interval.ms": 500}
    with (
        Front(tmp_path / "log.db", topics(t1=4), settings=settings, written=watched.take) as front,
        Wire(front.gateway.port) as wire,
    ):
        partitions = [{"partitionIndex": i, "committedOffset": 7, "committedMetadata": ""} for i in range(3)]
        body = {"groupId": "g", "generationIdOrMemberEpoch": -1, "memberId": "", "retentionTimeMs": 1_000}
        wire.ask("OffsetCommit", 4, {**body, "topics": [{"name": "t1", "partitions": partitions}]})
        wait(lambda: watched.count("offset_expiration_total") == 3, "they have expired")
    assert watched.offsets() == 0
    assert watched.groups() == {}
    assert watched.count("offset_commit_total") == 3


def test_metrics_health_and_readiness_are_served() -> None:
    state: dict[str, str | None] = {"health": None, "readiness": "not yet"}
    registry = CollectorRegistry()
    endpoint = MonitoringEndpoint(
        ("127.0.0.1", 0), registry, health=lambda: state["health"], readiness=lambda: state["readiness"]
    )
    endpoint.start()
    try:
        assert _get(endpoint.port, "/healthz") == (200, "ok\n")
        assert _get(endpoint.port, "/readyz") == (503, "not yet\n")
        assert _get(endpoint.port, "/metrics")[0] == 200
        assert _get(endpoint.port, "/other")[0] == 404
        with pytest.raises(UserError, match="choose another"):
            MonitoringEndpoint(("127.0.0.1", endpoint.port), registry, health=str, readiness=str)
    finally:
        endpoint.stop()


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120) as said:
            return said.status, said.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_log_line_is_one_line_of_json() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.getLogger("a.b").makeRecord(
            "a.b", logging.ERROR, __file__, 1, "it %s", ("failed",), sys.exc_info(), extra={"group": "g"}
        )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    said = json.loads(line)
    assert (said["level"], said["logger"], said["message"], said["group"]) == ("ERROR", "a.b", "it failed", "g")
    assert "ValueError: two" in said["traceback"]


def test_what_is_told_is_json_where_logs_are_and_of_spark_only_what_is_wrong() -> None:
    code = (
        "import logging, sys\n"
        "from coordinator_udf.monitoring import configure_logging, tell\n"
        "tell('before')\n"
        "configure_logging(as_json=sys.argv[1] == 'json')\n"
        "tell('listening on x')\n"
        "logging.getLogger('py4j.clientserver').info('Received command c on object id p0')\n"
        "tell('it failed', logging.ERROR)\n"
    )
    lines = {
        form: subprocess.run(
            [sys.executable, "-c", code, form], capture_output=True, text=True, timeout=300, check=True
        ).stderr.splitlines()
        for form in ("json", "text")
    }
    assert lines["text"] == ["before", "listening on x", "it failed"]
    assert lines["json"][0] == "before"
    said = [json.loads(line) for line in lines["json"][1:]]
    assert [(line["level"], line["logger"], line["message"]) for line in said] == [
        ("INFO", "muster", "listening on x"),
        ("ERROR", "muster", "it failed"),
    ]


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    from tests.conftest import ROOT

    dashboard = json.loads((ROOT / "conf" / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    sources = "".join(
        (ROOT / "coordinator_udf" / room / "metrics.py").read_text().replace('f"{_KAFKA}', f'"{KAFKA}')
        for room in ("gateway", "streaming")
    )
    assert len(asked) > 10
    for expression in asked:
        for word in expression.replace("(", " ").replace("[", " ").replace("{", " ").replace(")", " ").split():
            if word.startswith(("kafka_", "muster_")):
                name = word.removesuffix("_total").removesuffix("_bucket").removesuffix("_count")
                assert f'"{name}' in sources, word
