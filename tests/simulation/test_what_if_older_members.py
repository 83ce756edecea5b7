"""Logs that begin in the midst of a group's life, as every one does that was rotated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.what_if.change import Change
from coordinator_udf.simulation.what_if.comparison import compare
from coordinator_udf.simulation.what_if.group_log import GroupLog, read_groups
from coordinator_udf.simulation.what_if.log_entries import read_entries
from coordinator_udf.simulation.what_if.processes import arrived_ms
from tests.conftest import SAMPLE_LOG, shared

#: 2026-11-21 02:43:48 UTC, in the midst of the sample.
_MIDST_MS = 1795229028000
_SHORT_SESSIONS = {
    "group.consumer.session.timeout.ms": 10_000,
    "group.consumer.min.session.timeout.ms": 10_000,
}


def _since(path: Path, begin_ms: float) -> list[Entry]:
    return [entry for entry in read_entries(path) if arrived_ms(entry) >= begin_ms]


def _group(entries: list[Entry], group_id: str, settings: dict[str, int] | None = None) -> GroupLog:
    return next(one for one in read_groups(entries, settings or {}) if one.group_id == group_id)


@pytest.mark.parametrize("run", ["W2-base", "W2-cooperative", "W2-static", "W2-consumer"])
def test_members_that_are_older_than_the_log_are_in_its_world(run: str) -> None:
    """Of a run in which two of four are killed and come back, cut off 15 s after it began, when nothing happens."""
    path = shared("evidence", "ab", "dev") / f"{run}.request.log.gz"
    (whole,) = read_groups(read_entries(path), _SHORT_SESSIONS)
    begin_ms = whole.plan.start_ms + 15_000
    (later,) = read_groups(_since(path, begin_ms), _SHORT_SESSIONS)
    assert sorted(member.name for member in later.plan.members) == sorted(member.name for member in whole.plan.members)
    (said,) = [text for text in later.unknown if "the log begins later" in text]
    assert all(f"c{number} (1)" in said for number in range(1, 5))
    span = begin_ms, None
    of_whole, of_later = (compare(one, Change(), range(2), span) for one in (whole, later))
    assert of_later.calibration.matched == of_later.calibration.recorded == of_later.calibration.simulated > 0
    assert of_later.base.expulsions == of_whole.base.expulsions
    assert of_later.base.rebalances == of_whole.base.rebalances
    assert abs(of_later.base.moves - of_whole.base.moves) <= 2
    assert of_later.base.unowned_s == pytest.approx(of_whole.base.unowned_s, abs=3)


def test_a_group_in_which_nothing_happened_is_there() -> None:
    """Ten seconds of heartbeats and commits, without a single request to join."""
    path = shared("evidence", "ab", "dev") / "W2-base.request.log.gz"
    (whole,) = read_groups(read_entries(path), {})
    begin_ms = whole.plan.start_ms + 10_000
    some = [entry for entry in _since(path, begin_ms) if arrived_ms(entry) < begin_ms + 8_000]
    assert not [entry for entry in some if entry.api == "JoinGroup"]
    (group,) = read_groups(some, {})
    outcome = compare(group, Change(), range(1), (None, None), range(2))
    assert outcome.calibration.recorded == outcome.calibration.simulated == 0
    assert outcome.base.unowned_s == outcome.base_spread.most.unowned_s == 0
    assert "how c1 (1) was set up when it joined: Kafka's defaults are taken" in group.unknown


def test_what_happened_before_the_log_is_not_counted() -> None:
    group = _group(_since(SAMPLE_LOG, _MIDST_MS), "crash-b")
    assert group.plan.begin_ms > 0
    never = compare(replace(group, rebalances=()), Change(), range(1), (0, None))
    assert never.calibration.simulated == 1
    assert never.base.rebalances == 1
    assert {member.client_id for member in group.plan.members} == {"aiokafka-4", "aiokafka-5", "kafkapython-6"}


def test_a_member_that_was_killed_before_the_log_begins_is_said_to_be_left_out() -> None:
    group = _group(_since(SAMPLE_LOG, _MIDST_MS), "crash-a")
    said = "who was expelled at 2026-11-21 02:43:51, for no request of that member is in the log: it is left out"
    assert said in group.unknown
    assert not [text for text in group.unknown if "don't follow" in text]


def test_no_member_is_older_than_a_log_that_has_how_it_joined() -> None:
    for group in read_groups(read_entries(shared("broker", "logs-dev") / "storm.log.gz"), {}):
        assert group.plan.begin_ms == 0


def test_changed_settings_that_hold_the_group_up_until_its_log_begins_are_said_to() -> None:
    path = shared("evidence", "ab", "dev") / "W2-base.request.log.gz"
    (whole,) = read_groups(read_entries(path), {})
    (group,) = read_groups(_since(path, whole.plan.start_ms + 15_000), {})

    def said(delay_ms: int) -> list[str]:
        change = Change(settings={"group.initial.rebalance.delay.ms": delay_ms})
        return [text for text in compare(group, change, range(1), (None, None)).unknown if "isn't formed" in text]

    assert said(20_000) == []
    assert len(said(200_000)) == 1
