"""The views that explain an incident, on replays of what was really done to a broker's groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from schemas.view_comments import COLUMN_COMMENTS
from schemas.views import VIEWS
from tests.conftest import shared
from tests.sql.incident_views import VIEWS_IN_PROCESS

Ask = Callable[[str], list[dict[str, Any]]]
SCENARIOS = ("storm", "kip848", "static-restart", "max-poll")
SESSIONS = {"group.consumer.session.timeout.ms": "15000", "group.consumer.min.session.timeout.ms": "10000"}


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Request logs and INFO logs of some scenarios side by side, and one INFO log alone, in one set of tables."""
    out = tmp_path_factory.mktemp("incident")
    logs = [shared("evidence", "dev", f"{name}.{kind}.log.gz") for name in SCENARIOS for kind in ("request", "server")]
    logs.append(shared("evidence", "dev", "crash.server.log.gz"))
    request = ReplayRequest(tuple(logs), out, ReplayOptions(overrides=SESSIONS), overwrite=True)
    assert [report.failure for report in replay(None, request, print)] == [None] * (len(SCENARIOS) + 1)
    views = ViewsInProcess(str(out))
    views.make(VIEWS_IN_PROCESS)
    return views.ask


def one(ask: Ask, text: str) -> dict[str, Any]:
    (row,) = ask(text)
    return row


def test_whom_all_waited_for_is_never_unknown_where_requests_tell(ask: Ask) -> None:
    assert ask("SELECT * FROM waited_for WHERE source LIKE '%request%' AND how = 'not told'") == []
    dead = ask("SELECT client_id, at FROM waited_for WHERE group_id = 'storm-g' AND how = 'expelled' ORDER BY started")
    assert [row["client_id"] for row in dead] == ["flapper-0", "flapper-1", "flapper-2"]


def test_each_epoch_of_a_consumer_group_is_a_rebalance_with_its_cause(ask: Ask) -> None:
    rows = ask("SELECT * FROM rebalances WHERE group_id = 'kip848-a' ORDER BY generation")
    assert [row["generation"] for row in rows] == list(range(2, 12))
    grown = rows[4]
    assert (grown["trigger"], grown["reason"]) == ("TOPICS_CHANGED", "topic kip848-t grew from 3 to 6 partitions")
    killed = rows[5]
    assert (killed["trigger"], killed["trigger_client_id"], killed["trigger_timer"]) == (
        "SESSION_EXPIRED",
        "java-2",
        "session",
    )
    assert killed["assignor_ms"] is not None
    assert killed["target_computed"] > killed["started"]


def test_an_expulsion_tells_the_silence_before_it(ask: Ask) -> None:
    row = one(ask, "SELECT * FROM expulsions WHERE client_id = 'flapper-0'")
    assert (row["timer"], row["session_timeout_ms"]) == ("session", 6000)
    assert 6000 <= row["silence_ms"] < 6050
    assert row["while_others_waited"]
    assert row["came_back_as"].startswith("flapper-0-")


def test_restarts_of_static_members_are_told_though_they_caused_no_rebalance(ask: Ask) -> None:
    rows = ask(
        "SELECT identity, count(*) AS n, count_if(without_rebalance) AS quiet FROM incarnations "
        "WHERE group_id = 'static-restart-g' AND group_instance_id IS NOT NULL GROUP BY identity ORDER BY identity"
    )
    assert [(row["identity"], row["n"], row["quiet"]) for row in rows] == [
        ("inst-0", 2, 1),
        ("inst-1", 2, 1),
        ("inst-2", 2, 1),
    ]


def test_partitions_of_a_dead_owner_are_held_on_paper(ask: Ask) -> None:
    rows = ask("SELECT * FROM assignment_history WHERE group_id = 'kip848-a' AND client_id = 'java-2' AND on_paper")
    assert {row["topic"] for row in rows} <= {"kip848-t", "t1"}
    assert rows
    assert all(row["on_paper_ms"] > 10_000 for row in rows)


def test_findings_name_what_was_done(ask: Ask) -> None:
    found = {(row["group_id"], row["finding"]) for row in ask("SELECT group_id, finding FROM findings")}
    assert {
        ("storm-g", "silent member held up the group"),
        ("storm-g", "storm: flapping"),
        ("static-restart-g", "duplicate instance id"),
        ("max-poll-g", "left for it did not poll"),
        ("kip848-b", "instance id of a dead process"),
        ("crash-a", "expelled"),
    } <= found


def test_a_storm_names_the_setting_of_what_set_it_off(ask: Ask) -> None:
    rows = ask("SELECT group_id, finding, setting FROM findings WHERE finding LIKE 'storm: %'")
    found = {(row["group_id"], row["finding"]): row["setting"] for row in rows}
    assert found["max-poll-g", "storm: chain"] == "max.poll.interval.ms"
    assert found["storm-g", "storm: flapping"] == "session.timeout.ms"


def test_what_a_brokers_own_log_cannot_tell_is_a_gap(ask: Ask) -> None:
    gaps = ask("SELECT group_id, gap FROM gaps WHERE source LIKE 'crash%' ORDER BY group_id")
    assert [(row["group_id"], row["gap"]) for row in gaps] == [("crash-a", "no requests"), ("crash-b", "no requests")]
    row = one(
        ask, "SELECT * FROM rebalances WHERE group_id = 'crash-b' AND trigger = 'SESSION_EXPIRED' AND generation = 2"
    )
    assert (row["outcome"], row["member_count"], row["trigger_client_id"]) == ("Stable", 2, "aiokafka-5")


def test_where_all_answers_are_the_recorded_ones_all_is_reliable(ask: Ask) -> None:
    rows = ask("SELECT * FROM reliability WHERE source LIKE '%request%'")
    assert {row["diverged"] for row in rows} == {0}
    assert all(row["reliable_from"] == row["first_request"] for row in rows)


def test_refused_requests_say_why(ask: Ask) -> None:
    row = one(ask, "SELECT * FROM refused WHERE group_id = 'kip848-b' AND error = 'UNRELEASED_INSTANCE_ID'")
    assert (row["client_id"], row["is_normal"]) == ("b0-restarted", False)


def test_only_the_views_that_a_statement_needs_are_computed() -> None:
    assert views_named("SELECT 1 FROM groups") == ["groups"]
    assert views_named("SELECT * FROM rejoins") == [
        "member_events", "topic_changes", "reliability", "rebalances", "rejoins",
    ]  # fmt: skip
    assert views_named("select * from waited_for")[-1] == "waited_for"


_LINE = (
    "[2026-11-22 15:30:{:06.3f}] INFO [GroupCoordinator id=1 topic=__consumer_offsets partition=1] {} "
    "(org.apache.kafka.coordinator.group.GroupMetadataManager)"
)


def joins(member: str, generation: int, state: str = "Stable") -> list[str]:
    """What a broker says when a member joins, and sets a rebalance off unless one is under way."""
    why = f"Adding new member {member} with group instance id null; client reason: not provided"
    prepares = f"Preparing to rebalance group g in state PreparingRebalance with old generation {generation}"
    came = f"Pending dynamic member with id {member} joins group g in {state} state. Adding to the group now."
    return [came] if state == "PreparingRebalance" else [came, f"{prepares} (reason: {why})."]


def is_through(generation: int, *failed: str) -> list[str]:
    assigned = f"Assignment received from leader steady-1 for group g for generation {generation}."
    return [
        *(f"Member {member} in group g has failed, removing it from the group." for member in failed),
        f"Stabilized group g generation {generation} with 2 members.",
        f"{assigned} The group has 2 members, 0 of which are static.",
    ]


def test_the_forming_of_a_group_is_not_the_cause_of_a_storm_that_follows_it(tmp_path: Path) -> None:
    """The first that comes and goes is there before the group is through, on a machine with much else to do."""
    ids = {name: f"{name}-{i:08d}-0000-4000-8000-000000000000" for i, name in enumerate(
        ("steady-1", "restless-1", "restless-2", "restless-3", "restless-1 again", "restless-2 again"))}  # fmt: skip
    ids = {name: each.replace(" again", "") for name, each in ids.items()}
    told = [
        (0.0, joins(ids["steady-1"], 0, "Empty")),
        (8.0, joins(ids["restless-1"], 0, "PreparingRebalance")),
        (12.0, is_through(1)),
        # A moment before the line on the rebalance that it sets off.
        (15.0, joins(ids["restless-2"], 1)[:1]),
        (15.001, joins(ids["restless-2"], 1)[1:]),
        (18.0, is_through(2, ids["restless-1"])),
        (20.0, joins(ids["restless-3"], 2)),
        (24.0, is_through(3, ids["restless-2"])),
        (30.0, joins(ids["restless-1 again"], 3)),
        (33.0, is_through(4, ids["restless-3"])),
        (36.0, joins(ids["restless-2 again"], 4)),
        (40.0, is_through(5, ids["restless-1 again"])),
    ]
    log = tmp_path / "server.log"
    log.write_text("".join(f"{_LINE.format(at, text)}\n" for at, lines in told for text in lines))
    reports = replay(None, ReplayRequest((log,), tmp_path / "tables", ReplayOptions()), print)
    assert [report.failure for report in reports] == [None]
    views = ViewsInProcess(str(tmp_path / "tables"))
    views.make(views_named("storms"))
    storm = one(views.ask, "SELECT * FROM storms")
    assert (storm["looks_like"], storm["first_client_id"], storm["first_number"]) == ("flapping", "restless-2", 2)
    views.close()


def test_each_column_of_each_view_says_what_it_means(tmp_path: Path) -> None:
    views = ViewsInProcess(str(tmp_path))
    views.make(VIEWS)
    columns = {name: [field.name for field in views.schema(name)] for name in VIEWS}
    untold = [
        f"{name}.{column}"
        for name in VIEWS
        for column in columns[name]
        if not {f"{name}.{column}", column} & COLUMN_COMMENTS.keys()
    ]
    assert untold == []
    known = {column for each in columns.values() for column in each}
    known |= {f"{name}.{column}" for name, each in columns.items() for column in each}
    assert COLUMN_COMMENTS.keys() <= known
