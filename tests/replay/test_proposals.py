"""Settings that a broker's answers tell are proposed where those that were given contradict them."""

from __future__ import annotations

import pytest

from coordinator_udf.replay.explain.proposals import bounds_of, proposal_lines
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from tests.conftest import shared


def proposed(*place: str, given: tuple[str, ...] = ()) -> list[str]:
    source = read_source(shared(*place), "log", ReplayOptions.load(None, given))
    assert source.facts is not None
    return [line.split()[1] for line in proposal_lines(bounds_of(source.facts.entries.values()), source.settings)]


def test_nothing_is_proposed_where_the_settings_fit() -> None:
    assert proposed("broker", "logs-dev", "storm.log.gz") == []
    assert proposed("broker", "logs-dev", "fuzz-consumer.log.gz") == []


@pytest.mark.parametrize("name", ["limits", "whole-run"])
def test_what_a_broker_was_set_to_is_proposed(name: str) -> None:
    found = proposed("broker", "logs-dev", f"{name}.log.gz")
    wanted = {"group.consumer.max.size=2", "group.max.size=3", "group.initial.rebalance.delay.ms=0"}
    assert wanted <= set(found)
    assert any(line.startswith("group.min.session.timeout.ms=") for line in found)


def test_a_heartbeat_interval_is_proposed_unless_it_was_given() -> None:
    place = ("evidence", "ab", "dev", "W1-consumer.request.log.gz")
    setting = "group.consumer.heartbeat.interval.ms=1000"
    assert proposed(*place) == [setting]
    assert proposed(*place, given=("group.consumer.min.heartbeat.interval.ms=1000", setting)) == []
