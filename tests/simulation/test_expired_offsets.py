"""Offsets that the coordinator lets go of: those of groups that nobody is in for as long as their retention."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_udf.groups.decisions import PLACES
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.consumer import ConsumerGroup
from coordinator_udf.groups.offsets import expiry
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.plan import MemberPlan, NetworkPlan, TopicPlan, WorldPlan
from coordinator_udf.simulation.world import World
from tests.simulation.short_sessions import SHORT_SESSIONS


def _run(protocol: str, back_ms: int, **settings: Any) -> History:
    """A member that closes after a minute, and one that starts later."""
    properties = {"group.protocol": protocol}
    members = (
        MemberPlan("c", 1, "g", ("t",), 0, properties, close_at_ms=60_000),
        MemberPlan("c", 2, "g", ("t",), 60_000 + back_ms, properties),
    )
    known = {**SHORT_SESSIONS, "offsets.retention.check.interval.ms": 30_000, **settings}
    plan = WorldPlan(members, (TopicPlan("t", 2, records_s=1.0),), 460_000, known, NetworkPlan((1, 5)))
    return World(plan, 1).run()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_that_expire_while_nobody_is_there_are_not_lost(protocol: str) -> None:
    history = _run(protocol, 300_000, **{"offsets.retention.minutes": 1})
    record = PLACES["records"]
    rows = [row for decided in history.decisions for row in decided.records]
    gone = [row for row in rows if row[record["record_type"]] == "OffsetCommit" and row[record["body"]] is None]
    assert len(gone) == 2
    assert violations(history) == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_coordinator_that_lets_go_of_offsets_too_early_is_found(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "_is_expired", lambda *_: True)
    history = _run(protocol, 300_000, **{"offsets.retention.minutes": 60})
    assert {one.kind for one in violations(history)} == {"lost commit"}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_a_topic_that_a_member_has_are_lost_however_old_they_are(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in (ClassicGroup, ConsumerGroup):
        monkeypatch.setattr(group, "is_subscribed_to", lambda *_: False)
    # It commits at most once in ten minutes, and is there all the time.
    properties = {"group.protocol": protocol, "auto.commit.interval.ms": 100_000}
    members = tuple(MemberPlan(f"c{i}", 1, "g", ("t",), 0, properties, close_at_ms=300_000 + i) for i in range(2))
    settings = {"offsets.retention.check.interval.ms": 30_000, "offsets.retention.minutes": 1}
    plan = WorldPlan(members, (TopicPlan("t", 2, records_s=1.0),), 400_000, settings, NetworkPlan((1, 5)))
    assert "lost commit" in {one.kind for one in violations(World(plan, 1).run())}


def test_offsets_of_a_classic_group_are_lost_that_has_been_empty_for_less_than_their_retention(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClassicGroup, "offset_age_since", lambda _, commit_ms: commit_ms - 60_000)
    history = _run("classic", 300_000, **{"offsets.retention.minutes": 2})
    assert {one.kind for one in violations(history)} == {"lost commit"}
