"""What must not be in worlds of scenarios of which all is drawn, and what is left out of them."""

from __future__ import annotations

import pytest

from coordinator_udf.simulation.invariants import KAFKAS_OWN, violations
from coordinator_udf.simulation.scenario import draw_world
from coordinator_udf.simulation.scenario_fields import Scenario
from coordinator_udf.simulation.world import World
from tests.nightly import some_or_many
from tests.simulation.drawn_scenarios import drawn_scenarios

#: Who was refused for good waits, and a static leader that comes back sees no difference (docs/found-in-kafka.md):
#: they are told by these names.
_MAY_BE = KAFKAS_OWN | {"waiting", "unsettled"}


@pytest.mark.parametrize("scenario", list(drawn_scenarios(range(some_or_many(10, 400)))), ids=lambda one: one.title)
def test_nothing_is_wrong_in_a_drawn_scenario_and_what_is_left_out_changes_nothing(scenario: Scenario) -> None:
    for seed in range(some_or_many(1, 3)):
        plan = draw_world(scenario, seed)
        short, whole = World(plan, seed).run(), World(plan, seed, skips=False).run()
        assert {one.kind for one in violations(short)} <= _MAY_BE
        assert (short.events, short.requests, short.commits) == (whole.events, whole.requests, whole.commits)


#: A JoinGroup that is asked twice is answered twice, and begins one session; a static member that hasn't heard that it
#: has joined joins in its own place; who was put out of a full group, and polls on, has what it had. Partitions
#: are lost after a fatal error, or when the last commit of one that closes was refused; a static member that left for a
#: while may fall silent. A poll goes on after its callbacks before it throws. A join phase begins anew where static
#: members don't join again. A group of both protocols takes a classic member's commit of an older generation
#: (KIP-1251). Polls that are too short for a member's pattern let it join long after it has committed.
#: Who closes sends no heartbeats, for as long as its callbacks take. A classic member with a pattern that is cut off
#: waits for metadata in its polls; who believes to have left commits without an epoch; nobody waits for who is turned
#: away from a full group. What was given up before a membership was over is told as lost as well (`given up twice`).
@pytest.mark.parametrize(
    "number", [395, 413, 686, 170, 503, 541, 1062, 1438, 1490, 1338, 1413, 26, 141, 762, 800, 827, 1233]
)
def test_what_is_as_it_should_be_is_not_told(number: int) -> None:
    (scenario,) = drawn_scenarios(range(number, number + 1))
    assert {one.kind for one in violations(World(draw_world(scenario, 0), 0).run())} <= KAFKAS_OWN
