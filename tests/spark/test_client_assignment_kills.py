"""The scenarios of the client-side mode, all at once through the stream, whose driver is killed in their midst."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.registration import make_views, register
from coordinator_udf.sql.shapes import views_named
from tests.groups.harness import G
from tests.groups.played_scenarios import play_all
from tests.nightly import only_at_night
from tests.spark.conftest import Run, Scenario, assert_same_tables, scenario
from tests.spark.test_kills import Death, drivers, wait_for_death

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    only_at_night("test_client_assignment_cuts.py cuts the same scenarios, and test_kills.py kills drivers"),
]

MAX_ROWS = 700


@pytest.fixture(scope="module")
def recorded() -> tuple[Scenario, dict[str, str]]:
    """All scenarios in one log, and their answers as JSON by request id."""
    source, answers = play_all()
    return scenario(source), answers


def test_a_kill_in_their_midst_changes_none_of_them(
    coordinator_spark: SparkSession, tmp_path: Path, recorded: tuple[Scenario, dict[str, str]], run: Run
) -> None:
    played, answers = recorded
    played.make_log(tmp_path / "log", [40]).close()
    deaths = [Death("commit", 1)]
    with closing(drivers(tmp_path, played, deaths, max_rows=MAX_ROWS)) as running:
        for _, driver in running:
            wait_for_death(tmp_path, driver)
    run(played.settings)
    assert_same_tables(coordinator_spark, tmp_path / "tables", played.expected)
    responses = played.expected["group_responses"].to_pylist()
    given = {row["request_id"]: row["body"] for row in responses if not row["request_id"].endswith("/describe")}
    asked = {request_id: body for request_id, body in answers.items() if request_id in given}
    assert len(asked) > 500
    for request_id, body in asked.items():
        as_played = given[request_id].replace(request_id.partition("/")[0], G)
        assert msgspec.json.decode(as_played) == msgspec.json.decode(body), request_id
    look_at_views(coordinator_spark, tmp_path / "tables")


def look_at_views(spark: SparkSession, tables: Path) -> None:
    """Who computed what, with which assignor, how long it took, and refusals."""
    register(spark, str(tables))
    in_process = ViewsInProcess(str(tables))

    def ask(sql: str) -> list[dict[str, Any]]:
        make_views(spark, views_named(sql), in_process)
        return [row.asDict(recursive=True) for row in spark.sql(sql).collect()]

    group = "an_assignment_that_cannot_be_is_refused-0"
    rows = ask(f"SELECT * FROM rebalances WHERE group_id = '{group}' ORDER BY number")
    assert [(row["computed_by"], row["protocol"], row["assignment_refusals"]) for row in rows[:2]] == [
        ("a", "turns", 0),
        ("b", "turns", 0),
    ]
    assert rows[-1]["assignment_refusals"] == 1
    assert all(row["assignor_ms"] is not None for row in rows)
    failed = ask("SELECT max(assignment_error) AS error FROM rebalances")
    assert failed == [{"error": 8}]
    members = ask(f"SELECT member_id, is_leader, client_assignors FROM members WHERE group_id = '{group}'")
    assert {row["member_id"] for row in members} == {"a", "b", "c"}
    assert sum(row["is_leader"] for row in members) == 1
    assert all(row["client_assignors"] == ["turns"] for row in members)
    refused = ask(f"SELECT rule, reason FROM group_transitions WHERE group_id = '{group}' AND rule LIKE 'ASSIGNMENT_%'")
    assert any(row["rule"] == "ASSIGNMENT_REFUSED" and "nobody is not a member" in row["reason"] for row in refused)
    took = ask("SELECT assignor_ms FROM rebalances WHERE group_id = 'the_clock_starts_when_the_member_is_told-0'")
    assert took
