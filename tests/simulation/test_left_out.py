"""What is left out of a world while answers take long, connections are about to get lost, and metadata grows old."""

from __future__ import annotations

import pytest

from coordinator_udf.simulation.plan import Cut, MemberPlan, NetworkPlan, Slow, TopicPlan, WorldPlan
from coordinator_udf.simulation.world import World
from tests.simulation.short_sessions import SHORT_SESSIONS
from tests.simulation.test_world import PROTOCOLS


@pytest.mark.parametrize("protocol", ["range", "consumer"])
@pytest.mark.parametrize("is_slow", [False, True], ids=["far away", "slow for a while"])
def test_nothing_is_left_out_while_answers_take_longer_than_what_they_hold_up(protocol: str, *, is_slow: bool) -> None:
    """The next commit waits for the last one's answer, so that there are fewer than one each interval."""
    slow = (Slow(30_000, 100_000, 300),) if is_slow else ()
    properties = PROTOCOLS[protocol] | {"auto.commit.interval.ms": 200}
    members = tuple(MemberPlan(f"m{number}", 1, "g", ("t",), 0, properties, slow=slow) for number in range(2))
    network = NetworkPlan((1, 5) if is_slow else (50, 200))
    plan = WorldPlan(members, (TopicPlan("t", 4, records_s=5.0),), 160_000, network=network)
    whole, short = World(plan, 1, skips=False).run(), World(plan, 1).run()
    assert (whole.events, whole.requests) == (short.events, short.requests)
    # Where it is slow for a while only, there is something to leave out before and after.
    assert (len(short.decisions) < len(whole.decisions)) == is_slow


@pytest.mark.parametrize("seed", [0, 1, 2, 15])
def test_nothing_is_left_out_while_a_request_is_on_its_way_with_which_a_connection_gets_lost(seed: int) -> None:
    """Nor right before that: what was sent earlier takes another time than it would have taken then."""
    members = tuple(MemberPlan(f"m{number}", 1, "g", ("t",), 0, PROTOCOLS["range"]) for number in range(3))
    network = NetworkPlan((100, 200), loss=0.02)
    plan = WorldPlan(members, (TopicPlan("t", 6, records_s=1.0),), 300_000, network=network)
    whole, short = World(plan, seed, skips=False).run(), World(plan, seed).run()
    assert (whole.events, whole.requests, whole.commits) == (short.events, short.requests, short.commits)


@pytest.mark.parametrize("protocol", ["range", "consumer"])
@pytest.mark.parametrize("seed", range(4))
def test_metadata_is_as_old_after_a_stretch_that_is_left_out_as_if_it_were_not(protocol: str, seed: int) -> None:
    """A leader that is cut off as it asks for metadata hears 30 s later of it, and joins, and assigns, only then."""
    properties = PROTOCOLS[protocol] | {"metadata.max.age.ms": 2_000}
    cuts = (Cut(70_000 + 300 * seed, 12_000),)
    member = MemberPlan("c", 1, "g", ("t",), 0, properties, cuts=cuts)
    late = MemberPlan("late", 1, "g", ("t",), 130_000, properties)
    network = NetworkPlan((1, 60))
    plan = WorldPlan((member, late), (TopicPlan("t", 4),), 200_000, SHORT_SESSIONS, network)
    shortened, whole = World(plan, seed).run(), World(plan, seed, skips=False).run()
    assert shortened.events == whole.events
    assert shortened.requests == whole.requests
    assert shortened.commits == whole.commits
