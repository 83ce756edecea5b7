"""Every case of the proposal of 2015 through the stream, with kill -9 in the middle: one log, a group a case."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.replay.recording import Recording, ReplaySource
from coordinator_udf.settings.coordinator import Settings
from schemas.requests import LIVE
from tests.groups.coordinators import OurCoordinator, Outcome
from tests.groups.harness import TOPICS, G, World
from tests.groups.proposal_scenarios import EXTENDED, PLAIN
from tests.nightly import only_at_night
from tests.spark.conftest import Run, Scenario, assert_same_tables, assert_whole_log, scenario
from tests.spark.test_kills import Death, batches_done, drivers, wait_for_death

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETTINGS = {"group.classic.client.extensions.enable": True, "group.initial.rebalance.delay.ms": 3_000}
DEATHS = (Death("commit", 1), Death("stage"))


class Recorder(OurCoordinator):
    """A coordinator that keeps the rows of its log."""

    def __init__(self, settings: dict[str, Any], topics: list[Topic]) -> None:
        self.rows: list[dict[str, Any]] = []
        super().__init__(settings, topics)

    def feed(self, rows: list[dict[str, Any]]) -> Outcome:
        self.rows += [row for row in rows if row["api"] != "Describe"]
        return super().feed(rows)


def recorded() -> ReplaySource:
    """All cases, each a group in a partition of its own: a coordinator that fails in one doesn't in another."""
    rows: list[dict[str, Any]] = []
    cases = (*PLAIN, *EXTENDED)
    for partition, case in enumerate(cases):
        coordinator = Recorder(SETTINGS, TOPICS)
        case(World(coordinator, coordinator.records))
        moved = [_moved(row, partition, case.__name__) for row in coordinator.rows]
        rows += [{**row, "offset": offset} for offset, row in enumerate(moved)]
    return ReplaySource(LIVE, Settings.from_kafka(SETTINGS), len(cases), rows, Recording(exact=True))


def _moved(row: dict[str, Any], partition: int, group: str) -> dict[str, Any]:
    """A row of the only group of a log as one of another group, in one of many partitions."""
    moved = {**row, "partition": partition}
    if row["request_id"] is not None:
        moved["request_id"] = f"{group}-{row['request_id']}"
    if row["group_id"] is not None:
        moved["group_id"] = group
    if row["body"] is not None:
        body = json.loads(row["body"])
        if body.get("groupId") == G:
            body["groupId"] = group
        if body.get("key", {}).get("group") == G:
            body["key"]["group"] = group
        moved["body"] = json.dumps(body)
    return moved


@pytest.fixture(scope="module")
def cases() -> Scenario:
    return scenario(recorded())


def test_the_log_has_every_case(cases: Scenario) -> None:
    groups = {row["group_id"] for row in cases.rows if row["group_id"] is not None}
    assert groups == {case.__name__ for case in (*PLAIN, *EXTENDED)}
    assert cases.expected["rejected_requests"].num_rows == 0
    rules = set(cases.expected["group_transitions"].column("rule").to_pylist())
    assert {
        "LEADER_SYNC_FAILED", "SYNC_FAILURE_EXPIRED", "LEADER_RESYNCED", "RESYNC_COMPLETED", "RESYNC_REFUSED",
        "RESYNC_ABORTED",
    } <= rules  # fmt: skip


@only_at_night("tests/groups/test_proposal.py plays the same cases, and test_kills.py kills drivers")
def test_kills_in_the_middle_change_nothing(
    coordinator_spark: SparkSession, tmp_path: Path, cases: Scenario, run: Run
) -> None:
    cases.make_log(tmp_path / "log", [40, 7]).close()
    with closing(drivers(tmp_path, cases, DEATHS, max_rows=60)) as running:
        for _, driver in running:
            wait_for_death(tmp_path, driver)
    left = batches_done(tmp_path)
    run(cases.settings, max_rows=400)
    assert batches_done(tmp_path) > left, "the log was at its end before the last kill"
    assert_same_tables(coordinator_spark, tmp_path / "tables", cases.expected)
    assert_whole_log(coordinator_spark, tmp_path / "log", cases)
