"""What is changed in a log's world: as its group's protocol has it, nothing that is so already, and what can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator_udf.commands.job import as_app
from coordinator_udf.commands.what_if import main
from coordinator_udf.settings.coordinator import SettingsError
from coordinator_udf.simulation.history import ApplicationEvent
from coordinator_udf.simulation.what_if.change import Change, changed_plan
from coordinator_udf.simulation.what_if.change_checks import checked_plan
from coordinator_udf.simulation.what_if.comparison import compare
from coordinator_udf.simulation.what_if.group_log import GroupLog, read_groups
from coordinator_udf.simulation.what_if.log_entries import read_entries
from coordinator_udf.simulation.what_if.report import as_json, report_lines
from coordinator_udf.simulation.what_if.without_effect import without_effect
from coordinator_udf.simulation.world import World
from coordinator_udf.user_errors import InputError
from tests.conftest import SAMPLE_LOG, shared

#: A log of classic members (cooperative-sticky ones too), and two of KIP-848, the latter with static members.
CLASSIC, COOPERATIVE, CONSUMER, STATIC_CONSUMER = (
    "ab/dev/W2-base", "ab/dev/W2-cooperative", "ab/dev/W2-consumer", "dev/kip848",
)  # fmt: skip
MIGRATING = "dev/migrate"
_OF_GROUPS = "group.consumer"


def _path(log: str) -> Path:
    return shared("evidence", *log.split("/")[:-1]) / f"{log.rpartition('/')[2]}.request.log.gz"


@cache
def _group(log: str) -> GroupLog:
    return read_groups(read_entries(_path(log)), {})[-1]


@cache
def _sample() -> GroupLog:
    return next(one for one in read_groups(read_entries(SAMPLE_LOG), {}) if one.group_id == "crash-a")


def _properties(log: str, change: Change) -> list[Mapping[str, Any]]:
    return [member.properties for member in changed_plan(_group(log).plan, change).members]


@pytest.mark.parametrize(
    ("log", "change"),
    [
        (CLASSIC, Change()),
        (CLASSIC, Change(protocol="classic")),
        (CLASSIC, Change(assignor="range")),
        (CLASSIC, Change(session_timeout_ms=10_000)),
        (CLASSIC, Change(heartbeat_interval_ms=1_000)),
        (CLASSIC, Change(max_poll_interval_ms=300_000)),
        (CLASSIC, Change(cadence_ms=0)),
        (COOPERATIVE, Change(assignor="cooperative-sticky")),
        ("ab/dev/W2-static", Change(is_static=True)),
        (CONSUMER, Change()),
        (CONSUMER, Change(protocol="consumer")),
        (CONSUMER, Change(assignor="uniform")),
        (CONSUMER, Change(protocol="consumer", assignor="uniform")),
        (CONSUMER, Change(session_timeout_ms=10_000)),
        (CONSUMER, Change(protocol="consumer", session_timeout_ms=10_000)),
        (CONSUMER, Change(heartbeat_interval_ms=1_000)),
        (CONSUMER, Change(max_poll_interval_ms=300_000)),
        (STATIC_CONSUMER, Change(protocol="consumer")),
        (STATIC_CONSUMER, Change(heartbeat_interval_ms=5_000)),
    ],
)
def test_what_is_so_already_changes_nothing(log: str, change: Change) -> None:
    plan = _group(log).plan
    assert changed_plan(plan, change) == plan


def test_a_setting_that_is_so_already_changes_nothing() -> None:
    plan = _group(CONSUMER).plan
    same = {name: str(value) for name, value in plan.settings.items()}
    changed = changed_plan(plan, Change(settings=same))
    assert changed.members == plan.members
    assert {name: int(value) for name, value in changed.settings.items()} == plan.settings


def test_a_group_of_kip_848_that_is_to_speak_it_does_what_it_did() -> None:
    outcome = compare(_group(STATIC_CONSUMER), Change(protocol="consumer"), range(1), (None, None))
    assert outcome.base == outcome.changed


@pytest.mark.parametrize("protocol", [None, "consumer"])
def test_a_session_timeout_is_that_of_the_groups_own_protocol(protocol: str | None) -> None:
    """Three members are killed, one after the other: two of them come back, and nobody has what the third had."""
    change = Change(protocol=protocol, session_timeout_ms=30_000)
    outcome = compare(_group(CONSUMER), change, range(1), (None, None))
    assert outcome.changed.unowned_s > 2 * outcome.base.unowned_s


@pytest.mark.parametrize(
    "change", [Change(heartbeat_interval_ms=3_000), Change(settings={"group.consumer.heartbeat.interval.ms": "3000"})]
)
def test_a_heartbeat_interval_is_that_of_the_groups_own_protocol(change: Change) -> None:
    changed = changed_plan(_group(CONSUMER).plan, change)
    assert int(changed.settings["group.consumer.heartbeat.interval.ms"]) == 3_000
    assert not any(member.beats_ms or member.looks_ms or member.sent_ms for member in changed.members)
    assert {properties["heartbeat.interval.ms"] for properties in _properties(CONSUMER, change)} == {3_000}


@pytest.mark.parametrize(("log", "times"), [(CLASSIC, 3), (CONSUMER, 1)])
def test_classic_heartbeats_that_are_further_apart_are_as_much_later(log: str, times: int) -> None:
    """KIP-848's go out when they are due, by a timer of their own. A machine that hangs doesn't hang for longer."""
    plan = _group(log).plan
    lateness_ms = (1, 4, 5, 5, 6, 200)
    plan = replace(plan, members=tuple(replace(member, lateness_ms=lateness_ms) for member in plan.members))
    more_ms = 5 * (times - 1)
    for member in changed_plan(plan, Change(heartbeat_interval_ms=3_000)).members:
        assert member.lateness_ms == tuple(late_ms + more_ms for late_ms in lateness_ms)


@pytest.mark.parametrize(
    ("log", "change", "follows"),
    [
        (CONSUMER, Change(assignor="range"), False),
        (CONSUMER, Change(assignor="uniform"), True),
        (CLASSIC, Change(assignor="roundrobin"), False),
        (CLASSIC, Change(assignor="range"), True),
        (CLASSIC, Change(max_poll_interval_ms=200_000), True),
    ],
)
def test_a_group_whose_partitions_are_assigned_otherwise_doesnt_follow_the_recorded_day(
    log: str, change: Change, follows: bool
) -> None:
    outcome = compare(_group(log), change, range(1), (None, None), range(1))
    assert (outcome.base_on_other_days is None) == (outcome.base_details_on_other_days is None) == follows


def test_the_rate_of_records_is_read_off_commits_that_name_topics_by_ids() -> None:
    """As OffsetCommit does from version 10 on, which Java's members of KIP-848 send."""
    for log in (CLASSIC, CONSUMER):
        (topic,) = _group(log).plan.topics
        assert topic.records_s == pytest.approx(20 / 12, rel=0.05)


def test_each_member_of_a_group_that_migrates_is_changed_as_its_own_protocol_has_it() -> None:
    change = Change(session_timeout_ms=20_000)
    spoken = {p.get("group.protocol", "classic"): p.get("session.timeout.ms") for p in _properties(MIGRATING, change)}
    assert spoken == {"classic": 20_000, "consumer": None}
    changed = changed_plan(_group(MIGRATING).plan, change)
    assert changed.settings["group.consumer.session.timeout.ms"] == 20_000


@pytest.mark.parametrize(
    ("log", "change", "said"),
    [
        (
            CONSUMER,
            Change(assignor="sticky"),
            "'sticky', expected uniform, range, for ab-dev-w2-consumer speaks the protocol consumer",
        ),
        (CLASSIC, Change(assignor="uniform"), "'uniform', expected range, roundrobin, sticky, cooperative-sticky, for"),
        (CLASSIC, Change(protocol="consumer", assignor="sticky"), "'sticky', expected uniform, range"),
        (CONSUMER, Change(protocol="classic", assignor="uniform"), "'uniform', expected range, roundrobin"),
        (MIGRATING, Change(assignor="uniform"), "'uniform', expected range, for migrate-g speaks both group protocols"),
    ],
)
def test_an_assignor_that_a_groups_protocol_has_not_is_refused(log: str, change: Change, said: str) -> None:
    group = _group(log)
    with pytest.raises(SettingsError) as refused:
        checked_plan(group.group_id, group.plan, change)
    assert said in str(refused.value)


def _errors(events: list[ApplicationEvent]) -> list[ApplicationEvent]:
    return [event for event in events if event.event == "error"]


@pytest.mark.parametrize("protocol", [None, "consumer"])
def test_members_that_ask_for_an_assignor_have_the_other_one(protocol: str | None) -> None:
    """Two of three ask for range; if only uniform were known, they were refused."""
    group = _group(STATIC_CONSUMER)
    assert {member.properties.get("group.remote.assignor") for member in group.plan.members} == {"range", None}
    plan = checked_plan(group.group_id, group.plan, Change(protocol=protocol, assignor="uniform"))
    assert {member.properties.get("group.remote.assignor") for member in plan.members} == {None}
    history = World(plan, 0).run()
    assert _errors(history.events) == []
    assert {event.process for event in history.events if event.event == "assigned"} == {m.name for m in plan.members}


@pytest.mark.parametrize(
    ("group", "change", "said"),
    [
        (
            _sample,
            Change(session_timeout_ms=5_000),
            "session.timeout.ms is 5000, expected 6000 to 1800000; --set group.min.session.timeout.ms=... to",
        ),
        (
            _sample,
            Change(session_timeout_ms=2_000_000),
            "is 2000000, expected 6000 to 1800000; --set group.max.session.timeout.ms=... to",
        ),
        (
            _sample,
            Change(settings={"group.min.session.timeout.ms": "20000"}),
            ", expected 20000 to 1800000; --set group.min.",
        ),
        (
            lambda: _group(CONSUMER),
            Change(protocol="classic", session_timeout_ms=3_000),
            "is 3000, expected 6000 to 1800000",
        ),
        (
            lambda: _group(STATIC_CONSUMER),
            Change(settings={"group.consumer.assignors": "uniform"}),
            "group.remote.assignor is 'range', expected uniform; --assignor uniform to",
        ),
    ],
)
def test_members_that_would_be_refused_are_told_of_before_a_world_is_run(group: Any, change: Change, said: str) -> None:
    found = group()
    with pytest.raises(InputError, match="would be refused") as refused:
        checked_plan(found.group_id, found.plan, change)
    assert said in str(refused.value)


def test_what_lets_a_member_in_that_would_be_refused_is_followed() -> None:
    change = Change(session_timeout_ms=5_000, settings={"group.min.session.timeout.ms": "5000"})
    group = _sample()
    history = World(checked_plan(group.group_id, group.plan, change), 0).run()
    assert _errors(history.events) == []


@pytest.mark.parametrize(
    ("log", "change", "bounds"),
    [
        (CONSUMER, Change(settings={"group.consumer.session.timeout.ms": "30000"}), {}),
        (CONSUMER, Change(session_timeout_ms=30_000), {}),
        (CONSUMER, Change(session_timeout_ms=90_000), {"max.session.timeout.ms": 90_000}),
        (CONSUMER, Change(session_timeout_ms=5_000), {"min.session.timeout.ms": 5_000}),
        (CONSUMER, Change(heartbeat_interval_ms=500), {"min.heartbeat.interval.ms": 500}),
        (CLASSIC, Change(protocol="consumer", session_timeout_ms=90_000), {"max.session.timeout.ms": 90_000}),
        (CLASSIC, Change(protocol="consumer", heartbeat_interval_ms=20_000), {"max.heartbeat.interval.ms": 20_000}),
    ],
)
def test_a_setting_is_held_against_those_of_the_log(log: str, change: Change, bounds: dict[str, int]) -> None:
    """And what the bounds are nobody has told gives way, to no more than it must."""
    plan = _group(log).plan
    changed = checked_plan("g", plan, change)
    moved = {
        name
        for name in changed.settings
        if (".min." in name or ".max." in name) and changed.settings[name] != plan.settings.get(name)
    }
    assert {name.removeprefix("group.consumer."): changed.settings[name] for name in moved} == bounds


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            Change(settings={f"{_OF_GROUPS}.session.timeout.ms": "5000"}),
            f"{_OF_GROUPS}.min.session.timeout.ms is 10000",
        ),
        (Change(session_timeout_ms=90_000, settings={f"{_OF_GROUPS}.max.session.timeout.ms": "60000"}), "is 60000"),
        (Change(heartbeat_interval_ms=10_000), f"{_OF_GROUPS}.heartbeat.interval.ms is 10000, expected less than"),
    ],
)
def test_a_setting_that_those_of_the_log_dont_allow_is_refused(change: Change, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        checked_plan("ab-g", _group(CONSUMER).plan, change)
    assert said in str(refused.value)


def test_a_member_of_kip_848_that_is_to_be_a_classic_one_keeps_its_groups_session_timeout() -> None:
    assert {p["session.timeout.ms"] for p in _properties(CONSUMER, Change(protocol="classic"))} == {10_000}
    given = Change(protocol="classic", session_timeout_ms=20_000)
    assert {p["session.timeout.ms"] for p in _properties(CONSUMER, given)} == {20_000}
    assert not any("group.remote.assignor" in p for p in _properties(STATIC_CONSUMER, Change(protocol="classic")))


def test_a_refused_member_ends_the_command_before_any_world() -> None:
    result = CliRunner().invoke(as_app(main), [str(SAMPLE_LOG), "--group", "crash-a", "--session-timeout-ms", "5000"])
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("what-if: ")
    assert "of crash-a would be refused: session.timeout.ms is 5000" in line


@pytest.mark.parametrize(
    ("log", "change", "said"),
    [
        (CLASSIC, Change(), []),
        (CLASSIC, Change(session_timeout_ms=10_000), ["all that was asked for: it is so already"]),
        (
            CONSUMER,
            Change(settings={f"{_OF_GROUPS}.session.timeout.ms": "10000"}),
            ["all that was asked for: it is so already"],
        ),
        (
            CLASSIC,
            Change(settings={f"{_OF_GROUPS}.session.timeout.ms": "50000"}),
            [f"{_OF_GROUPS}.session.timeout.ms: no member speaks the protocol consumer"],
        ),
        (CLASSIC, Change(protocol="consumer", settings={f"{_OF_GROUPS}.session.timeout.ms": "50000"}), []),
        (
            CONSUMER,
            Change(settings={"group.max.size": "2"}, session_timeout_ms=30_000),
            ["group.max.size: no member speaks the protocol classic"],
        ),
        (MIGRATING, Change(settings={"group.max.size": "2", f"{_OF_GROUPS}.max.size": "2"}), []),
    ],
)
def test_what_makes_no_difference_is_told(log: str, change: Change, said: list[str]) -> None:
    plan = _group(log).plan
    assert list(without_effect(plan, changed_plan(plan, change), change)) == said


def test_what_makes_no_difference_stands_with_the_figures() -> None:
    outcome = compare(_sample(), Change(settings={f"{_OF_GROUPS}.max.size": "5"}), range(1), (None, None))
    assert outcome.base == outcome.changed
    line = f"{_OF_GROUPS}.max.size: no member speaks the protocol consumer"
    assert f"  changes nothing: {line}" in list(report_lines([outcome], {}))
    assert as_json([outcome], {})["groups"]["crash-a"]["without_effect"] == [line]
