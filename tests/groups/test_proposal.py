"""Every case of the proposal of 2015, on Kafka's behaviour and with the extensions (the table is in CONFORMANCE.md)."""

from __future__ import annotations

import pytest

from tests.groups.harness import World
from tests.groups.proposal_scenarios import EXTENDED, PLAIN, Scenario
from tests.groups.test_sync_errors import extended


def _name(scenario: Scenario) -> str:
    return scenario.__name__


@pytest.mark.parametrize("scenario", PLAIN, ids=_name)
def test_plain(world: World, scenario: Scenario) -> None:
    scenario(world)


@pytest.mark.parametrize("scenario", PLAIN, ids=_name)
def test_plain_with_the_setting_on(scenario: Scenario) -> None:
    scenario(extended())


@pytest.mark.parametrize("scenario", EXTENDED, ids=_name)
def test_extended(scenario: Scenario) -> None:
    scenario(extended())


def test_unmodified_members_are_answered_the_same_with_the_setting_on() -> None:
    for scenario in PLAIN:
        off, on = extended({"group.classic.client.extensions.enable": False}), extended()
        scenario(off)
        scenario(on)
        assert [off.answers[key].body for key in off.answers] == [on.answers[key].body for key in on.answers]
        assert [(r.key, r.version, r.value) for r in off.coordinator_records] == [
            (r.key, r.version, r.value) for r in on.coordinator_records
        ]
