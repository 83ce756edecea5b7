"""The ten questions, answered by the views for every recorded scenario, against what was really done in it.

The answers are judged by the timelines alone: nothing here knows a scenario's moments. What a broker's own log can't
tell (client ids of consumer groups, silences, refused requests) is asked of the request logs only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.forensics.load import load_facts
from coordinator_udf.forensics.sentences import at_the_end
from coordinator_udf.replay.inputs.detect import Format
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.recorded import Job, run_recorded
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.tables.parquet_files import commit
from schemas.view_comments import COLUMN_COMMENTS
from tests.conftest import shared
from tests.forensics.pairs import expulsion_differences, rebalance_differences
from tests.forensics.timeline import Process, Timeline, read_timeline
from tests.sql.incident_views import VIEWS_IN_PROCESS

pytestmark = pytest.mark.slow

Row = dict[str, Any]
SESSIONS = {"group.consumer.session.timeout.ms": "15000", "group.consumer.min.session.timeout.ms": "10000"}
FAST = {"group.consumer.heartbeat.interval.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "1000"}
AB = {**SESSIONS, **FAST, "group.consumer.session.timeout.ms": "10000"}
LIMITS = {
    "group.max.size": "3", "group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0",
    "offset.metadata.max.bytes": "64", "group.consumer.max.size": "2",
}  # fmt: skip
#: Of classic groups the timer is the member's own; of consumer groups it is the broker's.
CONSUMER_SESSION_MS = 45_000
#: Columns with so many values, all of which DESCRIBE names.
ENUMERATED = (
    ("rebalances", "outcome"), ("rebalances", "trigger"), ("rebalances", "trigger_timer"), ("rebalances", "kind"),
    ("rebalances", "join_ended_by"), ("waited_for", "how"), ("waited_for", "rule"), ("waited_for", "outcome"),
    ("expulsions", "timer"), ("expulsions", "rule"), ("incarnations", "ended_by"), ("member_events", "event"),
    ("member_events", "rule"), ("assignment_history", "change"), ("storms", "looks_like"),
    ("findings", "finding"), ("gaps", "gap"),
)  # fmt: skip
SLACK = timedelta(seconds=3)


@dataclass(frozen=True)
class Scenario:
    """A recording with its timeline; `source` is how the tables call it."""

    source: str
    path: Path
    timeline: Timeline
    session_ms: int
    is_info: bool

    @property
    def name(self) -> str:
        return self.path.name.partition(".")[0]


def scenarios() -> Iterator[tuple[Scenario, dict[str, str]]]:
    places: tuple[tuple[str, tuple[str, ...], dict[str, str], int], ...] = (
        ("dev", ("broker", "logs-dev"), {}, CONSUMER_SESSION_MS),
        ("evidence", ("evidence", "dev"), SESSIONS, 15_000),
        ("ab", ("evidence", "ab", "dev"), AB, 10_000),
    )
    for place, folder, settings, session_ms in places:
        for path in sorted(shared(*folder).glob("*.timeline.txt")):
            name = path.name.removesuffix(".timeline.txt")
            told = dict(settings)
            if "delay0" in name:
                told["group.initial.rebalance.delay.ms"] = "0"
            if name == "limits":
                told |= LIMITS
            timeline = read_timeline(path)
            kinds = ("log",) if place == "dev" else ("request.log", "server.log")
            for kind in kinds:
                log = path.with_name(f"{name}.{kind}.gz")
                yield Scenario(f"{place}/{log.name}", log, timeline, session_ms, kind == "server.log"), told


def job(scenario: Scenario, settings: dict[str, str], out: Path, number: int) -> Job:
    requests, infos = ((), (scenario.path,)) if scenario.is_info else ((scenario.path,), ())
    form = Format.INFO if scenario.is_info else Format.KAFKA
    options = ReplayOptions(overrides=settings)
    return Job(scenario.path, scenario.source, form, requests, infos, options, out, out / f".{number}")


Answers = dict[str, dict[tuple[str, str], list[Row]]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The rows of all views, by view, and by source and group."""
    out = tmp_path_factory.mktemp("scenarios")
    jobs = [job(*each, out, number) for number, each in enumerate(scenarios())]
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map(run_recorded, jobs))
    assert [result.report.failure for result in results if result.report.failure is not None] == []
    commit(out, [file for result in results for file in result.files])
    views = ViewsInProcess(str(out))
    views.make(VIEWS_IN_PROCESS)
    found: Answers = {"at_the_end": {}}
    for name in ("rebalances", "waited_for", "expulsions", "incarnations", "assignment_history", "storms", "findings",
                 "refused", "gaps", "reliability", "member_events"):  # fmt: skip
        found[name] = defaultdict(list)
        for row in views.ask(f"SELECT * FROM {name}"):
            found[name][row["source"], row["group_id"]].append(row)
    for facts in load_facts(views.ask):
        last = facts.last_gone
        found["at_the_end"][facts.source, facts.group_id] = [{
            "said": at_the_end(facts), "last": last and facts.name_of(last.member_id, last.client_id),
            "stayed": {facts.name_of(life.member_id, life.client_id) for life in facts.stayed},
        }]  # fmt: skip
    views.close()
    return found


ALL = [scenario for scenario, _ in scenarios()]
REQUESTS = [scenario for scenario in ALL if not scenario.is_info]
each_scenario = pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.source)
each_request_log = pytest.mark.parametrize("scenario", REQUESTS, ids=lambda scenario: scenario.source)


def session(scenario: Scenario, process: Process) -> timedelta:
    classic = process.protocol == "classic"
    return timedelta(milliseconds=(process.session_ms or 10_000) if classic else scenario.session_ms)


def joined(answers: Answers, scenario: Scenario, process: Process) -> bool:
    """Whether the process ever got in: one with a wrong protocol, or a duplicate instance id, doesn't."""
    until = process.ended or EVER
    return any(
        process.client_id == life["client_id"] or process.client_id == life["current_client_id"]
        for life in answers["incarnations"][scenario.source, process.group_id]
        if life["identity"] == process.identity and process.spawned <= life["since"] <= until
    )


def knows_clients(scenario: Scenario, group: str) -> bool:
    """A broker's own log names clients only in the ids of dynamic members of classic groups."""
    return not scenario.is_info or all(
        process.protocol == "classic" and process.instance_id is None for process in scenario.timeline.of(group)
    )


EVER, NEVER = datetime(9999, 1, 1), datetime(1, 1, 1)


def explains_leave(scenario: Scenario, client_id: str, at: datetime) -> bool:
    """Whether a client was told to close, or had not polled in time, or an admin removed it."""
    removals = [when for when, words in scenario.timeline.admin if words[0] in {"rmall", "rmstatic"}]
    return any(when - SLACK <= at <= when + SLACK for when in removals) or any(
        (process.how == "closed" and process.ended is not None and process.ended <= at <= process.ended + 2 * SLACK)
        or any(missed - SLACK <= at <= missed + 2 * SLACK for missed in process.poll_missed())
        for process in scenario.timeline.processes
        if process.client_id == client_id
    )


@each_scenario
def test_what_set_a_rebalance_off_was_done(answers: Answers, scenario: Scenario) -> None:
    timeline = scenario.timeline
    for group in timeline.groups:
        for row in answers["rebalances"][scenario.source, group]:
            who, at = row["trigger_client_id"], row["started"]
            if who is None:
                assert scenario.is_info or row["trigger"] in {"TOPICS_CHANGED", "REGEX_RESOLVED"}, row
            elif row["trigger"] == "MEMBER_ADDED" and knows_clients(scenario, group):
                assert any(p.client_id == who and p.lived(at, SLACK) for p in timeline.of(group)), row
            elif row["trigger"] == "MEMBER_LEFT" and knows_clients(scenario, group):
                assert explains_leave(scenario, who, at), row
            if row["trigger"] == "TOPICS_CHANGED":
                done = [words for when, words in timeline.admin if when <= at and words[0] in {"parts", "deltopic"}]
                assert any(f"topic {words[1]} " in row["reason"] for words in done), row


@each_scenario
def test_each_start_and_each_end_of_a_member_is_told(answers: Answers, scenario: Scenario) -> None:
    for group in scenario.timeline.groups:
        if not knows_clients(scenario, group) or scenario.timeline.downs:
            continue
        events = answers["member_events"][scenario.source, group]
        for process in scenario.timeline.of(group):
            if not joined(answers, scenario, process) or process.instance_id is not None or process.how != "closed":
                continue
            assert process.ended is not None
            leaves = [e for e in events if e["event"] == "left" and e["client_id"] == process.client_id]
            assert any(process.ended - SLACK <= e["at"] <= process.ended + 2 * SLACK for e in leaves), process


@each_request_log
def test_who_was_in_a_group_at_the_end_is_told(answers: Answers, scenario: Scenario) -> None:
    for group in scenario.timeline.groups:
        for told in answers["at_the_end"].get((scenario.source, group), ()):
            processes = scenario.timeline.of(group)
            # A static member that is closed keeps its place, and who was restarted has the name of who was closed.
            gone = {p.client_id for p in processes if p.how == "closed" and p.instance_id is None}
            gone -= {p.client_id for p in processes if p.how != "closed"}
            if not scenario.timeline.downs and not scenario.timeline.has_fuzz:
                assert not told["stayed"] & gone, told
            assert told["last"] is None or any(p.client_id == told["last"] for p in processes), told
            assert (told["said"] is None) == (told["last"] is None and not told["stayed"])


@each_scenario
def test_the_killed_are_expelled_and_nobody_else(answers: Answers, scenario: Scenario) -> None:
    timeline = scenario.timeline
    if timeline.downs:
        pytest.skip("the broker was away: sessions began anew")
    for group in timeline.groups:
        rows = answers["expulsions"][scenario.source, group]
        if not knows_clients(scenario, group):
            killed = [p for p in timeline.of(group) if p.how == "killed"]
            assert len(rows) <= len(killed) + sum(len(p.poll_missed()) for p in timeline.of(group)) + 2
            continue
        for row in rows:
            who = row["current_client_id"]
            # A static member that closes, or doesn't poll, is silent and not gone.
            silent = [
                moment
                for p in timeline.of(group)
                if p.client_id == who
                for moment in (p.ended if p.how == "killed" or p.instance_id else None, *p.poll_missed())
                if moment is not None
            ]
            assert any(moment <= row["at"] for moment in silent), row
            if row["silence_ms"] is not None and row["timer"] == "session":
                assert min(abs((row["last_request"] - m).total_seconds()) for m in silent) < 7, row
        for process in timeline.of(group):
            if process.how != "killed" or not joined(answers, scenario, process):
                continue
            assert process.ended is not None
            others = [p for p in timeline.of(group) if p.identity == process.identity and p.spawned > process.spawned]
            replaced = bool(others) and process.instance_id is not None
            removed = any(words[0] == "rmstatic" and words[2] == process.instance_id for _, words in timeline.admin)
            latest = process.ended + session(scenario, process) + 2 * SLACK
            if replaced or removed or (timeline.end is not None and latest > timeline.end):
                continue
            mine = [
                r for r in rows if r["current_client_id"] == process.client_id and process.ended < r["at"] <= latest
            ]
            assert len(mine) == 1, process


@each_request_log
def test_whom_all_waited_for_is_told(answers: Answers, scenario: Scenario) -> None:
    for group in scenario.timeline.groups:
        for row in answers["waited_for"][scenario.source, group]:
            if row["outcome"] in {"UnderWay", "Lost"}:
                continue
            assert row["how"] != "not told", row
            if row["how"] == "expelled" and not scenario.timeline.downs:
                ends = [p.ended for p in scenario.timeline.of(group) if p.how == "killed" or p.instance_id]
                assert any(end is not None and end <= row["at"] for end in ends) or scenario.name.startswith("W3"), row


@each_request_log
def test_each_process_is_told_from_the_one_before(answers: Answers, scenario: Scenario) -> None:
    timeline = scenario.timeline
    if timeline.downs:
        pytest.skip("clients connected anew when the broker came back")
    for group in timeline.groups:
        processes: dict[str, int] = defaultdict(int)
        for process in timeline.of(group):
            processes[process.identity] += joined(answers, scenario, process)
        told: dict[str, int] = defaultdict(int)
        for life in answers["incarnations"][scenario.source, group]:
            told[life["identity"]] = max(told[life["identity"]], life["process"])
        assert {name: count for name, count in told.items() if name in processes} == {
            name: count for name, count in processes.items() if count
        }


@each_request_log
def test_no_partition_has_two_owners_and_the_dead_own_on_paper(answers: Answers, scenario: Scenario) -> None:
    timeline = scenario.timeline
    for group in timeline.groups:
        rows = answers["assignment_history"][scenario.source, group]
        last: dict[tuple[str, int], datetime] = {}
        for row in sorted(rows, key=lambda row: row["since"]):
            place = row["topic"], row["partition"]
            assert row["since"] >= last.get(place, NEVER), row
            last[place] = row["until"] or EVER
            if row["on_paper"] and not timeline.downs:
                gone = [p.ended for p in timeline.of(group) if p.how == "killed" or p.instance_id]
                stalled = [moment for p in timeline.of(group) for moment in p.poll_missed()]
                assert any(end is not None and end < (row["until"] or EVER) for end in [*gone, *stalled]), row
        for process in timeline.of(group):
            killed_owner = [
                r for r in rows
                if process.how == "killed" and process.instance_id is None and process.ended is not None
                and r["client_id"] == process.client_id and r["since"] < process.ended < (r["until"] or EVER)
            ]  # fmt: skip
            end = timeline.end or EVER
            if process.ended is None or process.ended + session(scenario, process) + 2 * SLACK > end:
                continue
            assert all(row["on_paper"] for row in killed_owner), process


@each_request_log
def test_storms_are_what_they_were(answers: Answers, scenario: Scenario) -> None:
    looks = {
        row["looks_like"]: row
        for group in scenario.timeline.groups
        for row in answers["storms"][scenario.source, group]
    }
    if scenario.timeline.downs:
        pytest.skip("the broker was away: all clients connected anew")
    if scenario.name == "storm":
        first = next(p for p in scenario.timeline.processes if p.client_id.startswith("flapper"))
        assert looks["flapping"]["first_client_id"] == first.client_id
    elif scenario.name.startswith("W1") and "static" not in scenario.name:
        closed = next(p for p in scenario.timeline.processes if p.how == "closed")
        assert looks["deploy"]["first_client_id"] == closed.client_id
        assert set(looks["deploy"]["clients"]) == {p.client_id for p in scenario.timeline.processes}
    else:
        assert not looks.keys() & {"flapping", "deploy"}


@each_request_log
def test_findings_name_what_was_done(answers: Answers, scenario: Scenario) -> None:
    timeline = scenario.timeline
    for group in timeline.groups:
        found = {row["finding"]: row["text"] for row in answers["findings"][scenario.source, group]}
        stalled = [p for p in timeline.of(group) if p.poll_missed() and p.instance_id is None]
        for process in stalled:
            assert process.client_id in found["left and came back"], process
        instances: dict[str, list[Process]] = defaultdict(list)
        for process in timeline.of(group):
            if process.instance_id is not None:
                instances[process.instance_id].append(process)
        for instance, processes in instances.items():
            twice = any(a.ended is not None and b.spawned < a.ended for a, b in pairwise(processes))
            if twice:
                assert instance in found["duplicate instance id"]
        expelled = answers["expulsions"][scenario.source, group]
        assert ("expelled" in found) == bool(expelled)
        for row in expelled:
            assert (row["current_client_id"] or row["member_id"]) in found["expelled"]


@each_request_log
def test_refused_requests_are_told_with_who_asked(answers: Answers, scenario: Scenario) -> None:
    for process in scenario.timeline.processes:
        if joined(answers, scenario, process) or scenario.timeline.downs:
            continue
        refused = [
            row for row in answers["refused"][scenario.source, process.group_id]
            if row["client_id"] == process.client_id and not row["is_normal"]
        ]  # fmt: skip
        assert refused, f"{process} never got in, and nothing tells why"


@pytest.mark.parametrize("scenario", [one for one in ALL if one.is_info], ids=lambda scenario: scenario.source)
def test_a_brokers_own_log_tells_what_its_requests_tell(answers: Answers, scenario: Scenario) -> None:
    requests = scenario.source.replace(".server.", ".request.")
    for group in scenario.timeline.groups:
        for view, differences in (("rebalances", rebalance_differences), ("expulsions", expulsion_differences)):
            found = differences(answers[view][requests, group], answers[view][scenario.source, group])
            assert list(found) == [], (view, group)


@each_scenario
def test_what_cannot_be_known_is_said(answers: Answers, scenario: Scenario) -> None:
    for group in scenario.timeline.groups:
        gaps = answers["gaps"][scenario.source, group]
        told = {row["gap"] for row in gaps}
        if scenario.is_info:
            assert "no requests" in told
        else:
            assert "begins in the middle" not in told
            assert {row["diverged"] for row in answers["reliability"][scenario.source, group]} <= {0}
        for since, until, _ in scenario.timeline.downs:
            lived = [p for p in scenario.timeline.of(group) if p.lived(since) and joined(answers, scenario, p)]
            if lived and not scenario.is_info:
                away = [row for row in gaps if row["gap"] == "coordinator away"]
                assert any(row["since"] <= until + 5 * SLACK and (row["until"] or since) >= since for row in away)


@pytest.mark.parametrize(("view", "column"), ENUMERATED)
def test_a_column_says_which_values_it_can_have(answers: Answers, view: str, column: str) -> None:
    told = COLUMN_COMMENTS.get(f"{view}.{column}", COLUMN_COMMENTS.get(column, ""))
    found = {row[column] for rows in answers[view].values() for row in rows} - {None}
    assert found
    assert [value for value in sorted(found) if not re.search(rf"\b{re.escape(value)}\b", told)] == []
