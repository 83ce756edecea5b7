"""Members of one client id: Java's is empty unless somebody sets it, and many set it for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.what_if.change import Change, changed_plan
from coordinator_udf.simulation.what_if.comparison import compare
from coordinator_udf.simulation.what_if.group_log import GroupLog, read_groups
from coordinator_udf.simulation.what_if.log_entries import read_entries
from coordinator_udf.simulation.world import World
from tests.conftest import SAMPLE_LOG, shared
from tests.simulation.test_what_if_own_log import answers_and_rows, write_tables


def _renamed(entries: Sequence[Entry], client_id: str = "app") -> list[Entry]:
    return [msgspec.structs.replace(entry, client_id=client_id) for entry in entries]


def _group(entries: Sequence[Entry]) -> GroupLog:
    return next(one for one in read_groups(entries, {}) if one.group_id == "crash-a")


def test_processes_that_are_there_at_once_have_names_of_their_own() -> None:
    """Of five processes three are killed; two come when two of them are gone."""
    group = _group(_renamed(read_entries(SAMPLE_LOG)))
    names = [member.name for member in group.plan.members]
    assert sorted(names) == ["app-1/1", "app-1/2", "app-2/1", "app-3/1", "app-3/2"]
    assert {member.sent_client_id for member in group.plan.members} == {"app"}
    (said,) = [text for text in group.unknown if "comes after which" in text]
    assert "'app'" in said
    assert "up to 3 have it at once, and are named app-1 to app-3" in said
    assert any(text.startswith("app-1 (1) was killed within") for text in group.unknown)


@pytest.mark.parametrize(("client_id", "name"), [("", "client"), ("team/app", "team/app"), ("app/1", "app/1")])
def test_a_client_id_may_have_any_characters(client_id: str, name: str) -> None:
    group = _group(_renamed(read_entries(SAMPLE_LOG), client_id))
    outcome = compare(group, Change(), range(1), (None, None))
    assert outcome.calibration.matched == outcome.calibration.recorded == outcome.calibration.simulated
    assert set(outcome.base_details.stopped_s) == {f"{name}-{number}" for number in (1, 2, 3)}


def test_what_moves_between_them_is_counted() -> None:
    entries = read_entries(SAMPLE_LOG)
    alike, apart = (compare(_group(one), Change(), range(2), (None, None)) for one in (_renamed(entries), entries))
    assert alike.calibration.matched == alike.calibration.recorded == alike.calibration.simulated
    assert alike.base.unowned_s == pytest.approx(apart.base.unowned_s, abs=0.5)
    assert alike.base.expulsions == apart.base.expulsions
    # One that comes takes the place of one that was killed: what it is given of that one's didn't move.
    assert 0 < alike.base.moves <= apart.base.moves
    assert set(alike.base_details.stopped_s) == {"app-1", "app-2", "app-3"}


def test_static_members_of_one_client_id_do_not_fence_each_other() -> None:
    plan = changed_plan(_group(_renamed(read_entries(SAMPLE_LOG))).plan, Change(is_static=True))
    instances = {member.name: member.properties["group.instance.id"] for member in plan.members}
    assert instances["app-1/1"] == instances["app-1/2"] != instances["app-2/1"]
    history = World(plan, 0).run()
    assert not [event for event in history.events if event.event == "error"]


def test_drawn_member_ids_begin_with_what_is_sent() -> None:
    plan = _group(_renamed(read_entries(SAMPLE_LOG))).plan
    members = tuple(replace(member, member_ids=()) for member in plan.members)
    history = World(replace(plan, members=members), 0).run()
    assert {member_id.rpartition("-")[0] for member_id in history.process_of} == {"app"}


@pytest.mark.parametrize("run", ["W1-base", "W2-consumer", "W3-static"])
def test_who_shares_a_client_id_is_simulated_as_who_does_not(run: str) -> None:
    entries = read_entries(shared("evidence", "ab", "dev") / f"{run}.request.log.gz")
    (alike,), (apart,) = read_groups(_renamed(entries), {}), read_groups(entries, {})
    found, expected = (compare(one, Change(), range(1), (None, None)) for one in (alike, apart))
    assert found.calibration.matched == expected.calibration.matched
    assert (found.base.rebalances, found.base.moves) == (expected.base.rebalances, expected.base.moves)


def test_a_client_id_that_is_used_again_and_again_stays_a_name() -> None:
    entries = read_entries(shared("evidence", "ab", "dev") / "W1-base.request.log.gz")
    (group,) = read_groups(entries, {})
    assert {member.client_id for member in group.plan.members} == {f"c{number}" for number in range(1, 6)}
    assert not [text for text in group.unknown if "comes after which" in text]


def test_a_coordinators_own_tables_tell_members_of_one_client_and_host_apart(tmp_path: Path) -> None:
    answers, rows = answers_and_rows(_renamed(read_entries(SAMPLE_LOG)))
    write_tables(tmp_path, answers, rows)
    own, brokers = _group(read_entries(tmp_path)), _group(_renamed(read_entries(SAMPLE_LOG)))
    assert [member.name for member in own.plan.members] == [member.name for member in brokers.plan.members]
    calibration = compare(own, Change(), range(1), (None, None)).calibration
    assert calibration.matched == calibration.recorded == calibration.simulated == 5
