"""Other days of a log's group: what is done to a client comes later there, all of it by as much."""

from __future__ import annotations

import pytest

from coordinator_udf.simulation.plan import MemberPlan, Removal, TopicPlan, WorldPlan
from coordinator_udf.simulation.process_names import process_name
from coordinator_udf.simulation.what_if.other_days import on_another_day


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("client_id", ["a", "team/a"])
def test_a_member_is_removed_as_much_later_as_its_process_starts(client_id: str, seed: int) -> None:
    members = (
        MemberPlan(client_id, 1, "g", ("t",), 0, close_at_ms=40_000),
        MemberPlan(client_id, 2, "g", ("t",), 50_000),
    )
    removals = tuple(
        Removal(at_ms, process_name(client_id, run)) for run, at_ms in ((1, 5_000), (1, 30_000), (2, 50_100))
    )
    plan = WorldPlan(members, (TopicPlan("t", 2),), 120_000, removals=removals)
    drawn = on_another_day(plan, 10_000, seed)
    by_ms = drawn.members[1].start_ms - 50_000
    assert 0 <= by_ms < 3_000
    # What was before the group was formed stays where it was.
    assert [removal.at_ms for removal in drawn.removals] == [5_000, 30_000 + by_ms, 50_100 + by_ms]
