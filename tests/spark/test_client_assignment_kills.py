"""The scenarios of the client-side mode, all at once through the stream, whose driver is killed in their midst."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from coordinator_udf.replay.recording import Recording, ReplaySource, number_offsets
from coordinator_udf.sql.registration import make_views, register
from coordinator_udf.sql.shapes import views_named
from schemas.requests import LIVE
from tests.groups import test_client_assignment as scenarios
from tests.groups.computing_member import CLIENT_SIDE
from tests.groups.coordinators import Answer, OurCoordinator, Outcome
from tests.groups.harness import TOPICS, G, World
from tests.spark.conftest import Run, Scenario, assert_same_tables, scenario
from tests.spark.test_kills import Death, drivers, wait_for_death

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MAX_ROWS = 700


class Recorder(OurCoordinator):
    """A coordinator that keeps the rows that it was given, and its answers."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.answers: list[Answer] = []
        super().__init__(CLIENT_SIDE, TOPICS)

    def feed(self, rows: list[dict[str, Any]]) -> Outcome:
        self.rows += rows
        outcome = super().feed(rows)
        self.answers += outcome.answers
        return outcome


def every_scenario() -> Iterator[tuple[str, Callable[[World], None]]]:
    """Each test of the module that plays in one world, once for each of its parameters."""
    for name, test in vars(scenarios).items():
        if not name.startswith("test_") or "world" not in inspect.signature(test).parameters:
            continue
        given: list[dict[str, Any]] = [{}]
        for mark in getattr(test, "pytestmark", []):
            names = mark.args[0] if isinstance(mark.args[0], tuple) else (mark.args[0],)
            given = [
                {**one, **dict(zip(names, values if len(names) > 1 else (values,), strict=True))}
                for one in given
                for values in mark.args[1]
            ]
        for number, arguments in enumerate(given):
            yield f"{name.removeprefix('test_')}-{number}", lambda world, t=test, a=arguments: t(world, **a)  # type: ignore[misc]


def renamed(text: str | None, group: str) -> str | None:
    return None if text is None else text.replace(f'"{G}"', f'"{group}"')


@pytest.fixture(scope="module")
def recorded() -> tuple[Scenario, dict[str, str]]:
    """All scenarios in one log, each a group and a partition of its own; and their answers as JSON by request id."""
    rows: list[dict[str, Any]] = []
    answers: dict[str, str] = {}
    for partition, (name, play) in enumerate(every_scenario()):
        recorder = Recorder()
        play(World(recorder, recorder.records))
        for row in recorder.rows:
            request_id = row["request_id"] and f"{name}/{row['request_id']}"
            group_id = name if row["group_id"] == G else row["group_id"]
            body = renamed(row["body"], name)
            # What a spanning request's parts and control rows say of all partitions is of this one alone.
            rows.append(
                {
                    **row,
                    "partition": partition,
                    "request_id": request_id,
                    "group_id": group_id,
                    "body": body,
                    "parts": 1,
                }
            )
        for answer in recorder.answers:
            answers[f"{name}/{answer.request_id}"] = msgspec.json.encode(answer.body).decode()
    number_offsets(rows)
    settings = OurCoordinator(CLIENT_SIDE, TOPICS).settings
    source = ReplaySource(LIVE, settings, 1 + max(row["partition"] for row in rows), rows, Recording(exact=True))
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

    def ask(sql: str) -> list[dict[str, Any]]:
        make_views(spark, views_named(sql))
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
