"""What is told to those who watch: the gateway's counters, the coordinator's, and the endpoint."""

from __future__ import annotations

import json
import logging
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from coordinator_udf.monitoring import JsonFormatter, MonitoringEndpoint
from coordinator_udf.streaming.metrics import CoordinatorMetrics
from coordinator_udf.user_errors import UserError
from tests.gateway.in_process import Front, topics
from tests.gateway.wire import HEARTBEAT, Wire, join

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
        assert (counted("muster_gateway_rows_total") or 0) >= 4


def test_a_coordinator_counts_what_its_batches_decided(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    metrics = CoordinatorMetrics(registry, str(tmp_path / "tables"))
    with Front(tmp_path / "log.db", topics(t1=2), written=metrics.take) as front, Wire(front.gateway.port) as wire:
        member = wire.ask("JoinGroup", 5, join())["memberId"]
        joined = wire.ask("JoinGroup", 5, join(member_id=member))
        me = {**HEARTBEAT, "generationId": joined["generationId"], "memberId": member}
        wire.ask("SyncGroup", 3, {**me, "assignments": [{"memberId": member, "assignment": ""}]})
        partition = {"partitionIndex": 0, "committedOffset": 7, "committedLeaderEpoch": -1, "committedMetadata": ""}
        del me["generationId"]
        commit = {**me, "generationIdOrMemberEpoch": 1, "topics": [{"name": "t1", "partitions": [partition]}]}
        assert wire.ask("OffsetCommit", 8, commit)["topics"][0]["partitions"][0]["errorCode"] == 0
        assert registry.get_sample_value(f"{KAFKA}_group_count", {"state": "Stable"}) == 1
        assert registry.get_sample_value(f"{KAFKA}_group_completed_rebalance_total") == 1
        assert registry.get_sample_value(f"{KAFKA}_offset_commit_total") == 1


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
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as said:
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
