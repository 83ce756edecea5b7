"""Worlds of members with and without the extensions of the classic protocol: one owner a partition, and they settle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator_udf.groups.decisions import PLACES
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.plan import Cut, Failover, MemberPlan, NetworkPlan, Stall, TopicPlan, WorldPlan
from coordinator_udf.simulation.world import World
from tests.nightly import some_or_many

_KAFKAS = "org.apache.kafka.clients.consumer."
RANGE, ROUND_ROBIN, STICKY, COOPERATIVE = (
    f"{_KAFKAS}{name}Assignor" for name in ("Range", "RoundRobin", "Sticky", "CooperativeSticky")
)
#: What the members of a group may name; of the last one some are eager and some cooperative.
STRATEGIES = (
    (RANGE,), (ROUND_ROBIN,), (STICKY,), (COOPERATIVE,), (f"{RANGE},{COOPERATIVE}",),
    (f"{COOPERATIVE},{RANGE}", COOPERATIVE),
)  # fmt: skip
_BASE: dict[str, Any] = {"session.timeout.ms": 10_000, "max.poll.interval.ms": 20_000}
_ON = {"group.initial.rebalance.delay.ms": 500, "group.classic.client.extensions.enable": True}
#: The last fault is over at 65 s at the latest: a stall or a cut of 15 s that begins at 50 s.
FAULTS_MS = (3_000, 50_000)
END_MS = 150_000
_TRANSITION = PLACES["transitions"]


def rules(history: History) -> Counter[str]:
    return Counter(row[_TRANSITION["rule"]] for said in history.decisions for row in said.transitions)


def properties(strategy: str, *, extensions: bool, **more: Any) -> dict[str, Any]:
    return {
        **_BASE,
        "partition.assignment.strategy": strategy,
        "classic.client.extensions.enable": extensions,
        "heartbeat.interval.ms": 1_000,
        "metadata.max.age.ms": 3_000,
        **more,
    }


@st.composite
def members(draw: st.DrawFn) -> tuple[MemberPlan, ...]:
    """Up to four of one group, and one that nothing happens to.

    None is static: a static leader that comes back after a topic grew, and is told to skip the assignment (KIP-814),
    never assigns the new partitions, in Kafka too.
    """
    strategies = draw(st.sampled_from(STRATEGIES))
    all_understand = draw(st.booleans())
    time = st.integers(*FAULTS_MS)
    made: list[MemberPlan] = []
    for number in range(draw(st.integers(0, 4))):
        more: dict[str, Any] = {"heartbeat.interval.ms": draw(st.sampled_from((500, 3_000)))}
        own = properties(draw(st.sampled_from(strategies)), extensions=all_understand or draw(st.booleans()), **more)
        member = MemberPlan(f"c{number}", 1, "g", ("t", "u"), draw(st.sampled_from((0, 0, 20_000))), own)
        fault = draw(st.sampled_from(("none", "none", "crash", "close", "stall", "cut", "slow")))
        match fault:
            case "crash":
                member = replace(member, crash_at_ms=member.start_ms + draw(time))
                made.append(replace(member, run=2, start_ms=(member.crash_at_ms or 0) + 2_000, crash_at_ms=None))
            case "close":
                member = replace(member, close_at_ms=member.start_ms + draw(time))
            case "stall":
                member = replace(member, stalls=(Stall(draw(time), draw(st.integers(500, 15_000))),))
            case "cut":
                member = replace(member, cuts=(Cut(draw(time), draw(st.integers(200, 15_000))),))
            case "slow":
                member = replace(member, callback_ms=300)
            case _:
                pass
        made.append(member)
    own = properties(draw(st.sampled_from(strategies)), extensions=all_understand or draw(st.booleans()))
    return (*made, MemberPlan("survivor", 1, "g", ("t", "u"), draw(st.sampled_from((0, 9_000))), own))


@st.composite
def worlds(draw: st.DrawFn) -> WorldPlan:
    topics = [TopicPlan("t", 4), TopicPlan("u", 2)]
    sizes = {"t": 4, "u": 2}
    for at_ms in sorted(draw(st.lists(st.integers(*FAULTS_MS), min_size=1, max_size=4))):
        name = draw(st.sampled_from(("t", "u")))
        sizes[name] += draw(st.integers(1, 4))
        topics.append(TopicPlan(name, sizes[name], at_ms))
    failovers: list[Failover] = []
    for at_ms in sorted(draw(st.lists(st.integers(*FAULTS_MS), max_size=3))):
        if not failovers or at_ms > failovers[-1].at_ms + failovers[-1].down_ms:
            failovers.append(Failover(at_ms, draw(st.sampled_from((0, 500, 3_000)))))
    network = NetworkPlan((1, draw(st.sampled_from((1, 5, 200)))))
    cadence_ms = draw(st.sampled_from((0, 0, 300)))
    return WorldPlan(
        draw(members()), tuple(topics), END_MS, _ON, network, failovers=tuple(failovers), cadence_ms=cadence_ms
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(worlds(), st.integers(0, 2**32))
def test_a_partition_has_one_owner_and_every_group_settles(plan: WorldPlan, seed: int) -> None:
    assert violations(World(plan, seed).run()) == []


@pytest.mark.slow
@settings(max_examples=some_or_many(100, 2_000), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), st.integers(0, 2**32))
def test_so_it_is_in_many_worlds(plan: WorldPlan, seed: int) -> None:
    assert violations(World(plan, seed).run()) == []


def grown(strategy: str, *, unaware: int = 0, on: bool = True) -> History:
    """Three members, and a topic that grows after 20 s; the last ones don't understand the extensions."""
    made = tuple(
        MemberPlan(f"c{number}", 1, "g", ("t",), 300 * number, properties(strategy, extensions=number < 3 - unaware))
        for number in range(3)
    )
    topics = TopicPlan("t", 7), TopicPlan("t", 11, 20_000)
    settings = {**_ON, "group.classic.client.extensions.enable": on}
    return World(WorldPlan(made, topics, 60_000, settings, NetworkPlan((1, 5))), 2).run()


def after_growth(history: History, event: str) -> list[int]:
    """How many partitions each of those events was about."""
    start_ms = history.start_ms + 20_000
    return sorted(len(one.partitions) for one in history.events if one.event == event and one.ts_ms > start_ms)


@pytest.mark.parametrize("strategy", [RANGE, ROUND_ROBIN, STICKY, COOPERATIVE])
def test_a_topic_grows_without_a_join(strategy: str) -> None:
    history = grown(strategy)
    assert violations(history) == []
    assert rules(history)["LEADER_RESYNCED"] == 1
    assert rules(history)["RESYNC_COMPLETED"] == 1
    assert history.requests["JoinGroup"] == 6, "two for each member when it came"


def test_a_cooperative_member_is_given_the_difference() -> None:
    history = grown(COOPERATIVE)
    assert after_growth(history, "revoked") == []
    assert after_growth(history, "assigned") == [1, 1, 2]


def test_an_eager_member_gives_up_all_and_is_given_all() -> None:
    history = grown(STICKY)
    assert after_growth(history, "revoked") == [2, 2, 3]
    assert after_growth(history, "assigned") == [3, 4, 4]


@pytest.mark.parametrize(("unaware", "on"), [(1, True), (0, False), (3, True)])
def test_otherwise_all_join_as_in_kafka(unaware: int, *, on: bool) -> None:
    history = grown(RANGE, unaware=unaware, on=on)
    assert violations(history) == []
    assert rules(history)["LEADER_RESYNCED"] == 0
    assert rules(history)["LEADER_REJOINED"] == 1
    assert history.requests["JoinGroup"] == 9
