"""Worlds of members, network, topics and a coordinator: what must hold in each, and that a seed tells all."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from coordinator_udf.members import inputs
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.simulation.application import Records
from coordinator_udf.simulation.application_loops import ApplicationLoops, Applications
from coordinator_udf.simulation.delivery import ADMIN
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.measures import rebalance_times
from coordinator_udf.simulation.plan import (
    Cut,
    Failover,
    Hang,
    MemberPlan,
    NetworkPlan,
    Removal,
    Slow,
    Stall,
    TopicPlan,
    WorldPlan,
)
from coordinator_udf.simulation.process import Process
from coordinator_udf.simulation.scenario import failovers_apart
from coordinator_udf.simulation.what_if.rebalances import MEMBER_LEFT, TOPICS_CHANGED, simulated_rebalances
from coordinator_udf.simulation.world import World
from tests.simulation.short_sessions import SHORT_SESSIONS

_BASE: dict[str, Any] = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000, "max.poll.interval.ms": 30_000}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": _BASE | {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"},
    "cooperative": _BASE
    | {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"},
    "consumer": {"group.protocol": "consumer", "max.poll.interval.ms": 30_000},
    "consumer, computing": {
        "group.protocol": "consumer",
        "max.poll.interval.ms": 30_000,
        "group.local.assignors": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    },
}
_SETTINGS = {
    **SHORT_SESSIONS,
    "group.initial.rebalance.delay.ms": 500,
    "group.consumer.client.assignors.enable": True,
}
_PARTITIONS = 7


def _plan(protocol: str, **changes: Any) -> WorldPlan:
    members = tuple(MemberPlan(f"c{number}", 1, "g", ("t",), 300 * number, PROTOCOLS[protocol]) for number in range(3))
    plan = WorldPlan(members, (TopicPlan("t", _PARTITIONS),), 60_000, _SETTINGS, NetworkPlan((1, 5)))
    return replace(plan, **changes)


def _owners(history: History) -> dict[TopicPartition, set[str]]:
    """Who owns what at a world's end, as the members were told."""
    owners: dict[TopicPartition, set[str]] = defaultdict(set)
    for event in history.events:
        process = f"{event.client_id}/{event.run}"
        if event.event == "assigned":
            for partition in event.partitions:
                owners[partition].add(process)
        elif event.event in {"revoked", "lost"}:
            for partition in event.partitions:
                owners[partition].discard(process)
        elif event.event in {"crash", "closed"}:
            for of_partition in owners.values():
                of_partition.discard(process)
    return owners


def _is_shared_out(history: History, partitions: int) -> bool:
    owners = _owners(history)
    return all(len(owners[TopicPartition("t", number)]) == 1 for number in range(partitions))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_comes_to_own_everything_once(protocol: str) -> None:
    history = World(_plan(protocol), 1).run()
    assert _is_shared_out(history, _PARTITIONS)
    assert not [event for event in history.events if event.event == "error"]


@pytest.mark.parametrize("seed", range(5))
def test_a_member_of_kip_848_acknowledges_as_soon_as_it_has_given_up_what_it_was_to(seed: int) -> None:
    """Real ones took 1 to 5 ms (evidence/ab, W1-consumer): their thread wakes the application for each callback."""
    # The commit that comes first is answered while the application is woken.
    plan = _plan(
        "consumer", keeps_requests=True, network=NetworkPlan((1, 1)), topics=(TopicPlan("t", 7, records_s=1.0),)
    )
    history = World(plan, seed).run()
    given_up = [event for event in history.events if event.event == "revoked"]
    beats = [(one.process, one.arrived_ms) for one in history.answered if one.api == "ConsumerGroupHeartbeat"]
    assert given_up
    for event in given_up:
        next_ms = min(at_ms for process, at_ms in beats if process == event.process and at_ms >= event.ts_ms)
        # To be woken takes 2 ms, and the way to the coordinator 1.
        assert next_ms - event.ts_ms <= 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_seed_tells_all(protocol: str) -> None:
    members = tuple(replace(member, lateness_ms=(0, 3, 40)) for member in _plan(protocol).members)
    plan = _plan(protocol, network=NetworkPlan((1, 50), loss=0.01), members=members)
    first, again, other = World(plan, 3).run(), World(plan, 3).run(), World(plan, 4).run()
    assert first.events == again.events
    assert first.requests == again.requests
    assert first.events != other.events


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_grows_under_a_group(protocol: str) -> None:
    members = _plan(protocol).members
    members = tuple(
        replace(member, properties={**member.properties, "metadata.max.age.ms": 5_000}) for member in members
    )
    topics = TopicPlan("t", _PARTITIONS), TopicPlan("t", _PARTITIONS + 4, at_ms=20_000)
    assert _is_shared_out(World(_plan(protocol, members=members, topics=topics), 2).run(), _PARTITIONS + 4)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_is_deleted_under_a_group(protocol: str) -> None:
    members = tuple(
        replace(member, topics=("t", "u"), properties={**member.properties, "metadata.max.age.ms": 5_000})
        for member in _plan(protocol).members
    )
    topics = TopicPlan("t", _PARTITIONS), TopicPlan("u", 3, records_s=1.0), TopicPlan("u", 0, at_ms=20_000)
    plan = _plan(protocol, members=members, topics=topics)
    history = World(plan, 2).run()
    assert _is_shared_out(history, _PARTITIONS)
    of_deleted = [own for partition, own in _owners(history).items() if partition.topic == "u"]
    assert len(of_deleted) == 3
    assert not any(of_deleted)
    assert violations(history) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_coordinator_that_answers_once_in_a_while_is_enough(protocol: str) -> None:
    assert _is_shared_out(World(_plan(protocol, cadence_ms=500), 2).run(), _PARTITIONS)


def test_answers_wait_for_the_end_of_a_micro_batch_and_nothing_else_does() -> None:
    """A member comes just after 5 s: what its join sets off, the initial delay of 3 s too, goes by when it came."""
    member = MemberPlan("c1", 1, "g", ("t",), 5_000, PROTOCOLS["range"])
    plan = WorldPlan((member,), (TopicPlan("t", 2),), 40_000, cadence_ms=5_000, keeps_requests=True)
    history = World(plan, 0).run()
    times = [
        (one.api, one.arrived_ms - plan.start_ms, one.answered_ms - plan.start_ms)
        for one in history.answered
        if one.api in {"JoinGroup", "SyncGroup"}
    ]
    (api, came_ms, told_ms), (_, again_ms, formed_ms), (_, synced_ms, assigned_ms) = times
    assert api == "JoinGroup"
    assert 5_000 < came_ms < 5_010
    assert told_ms == 10_000
    assert 10_000 < again_ms < 10_010
    # Formed 3 s after it came again.
    (at_ms,) = [time - plan.start_ms for time in rebalance_times(history.decisions, "g")]
    assert at_ms == again_ms + 3_000
    assert formed_ms == 15_000
    assert (15_000 < synced_ms < 15_010, assigned_ms) == (True, 20_000)
    assert {one.answered_ms % 5_000 for one in history.answered if one.api != "FindCoordinator"} == {
        plan.start_ms % 5_000
    }


def test_what_comes_of_a_connection_within_a_micro_batch_is_answered_at_its_end() -> None:
    """Muster's gateway has only what comes behind a JoinGroup or SyncGroup wait for that answer."""
    properties = PROTOCOLS["range"] | {"heartbeat.interval.ms": 400, "auto.commit.interval.ms": 700}
    members = tuple(MemberPlan(f"c{number}", 1, "g", ("t",), 0, properties) for number in range(3))
    plan = WorldPlan(members, (TopicPlan("t", 3, records_s=5.0),), 40_000, cadence_ms=2_000, keeps_requests=True)
    history = World(plan, 0).run()
    waited_ms = [
        one.answered_ms - one.arrived_ms
        for one in history.answered
        if one.api in {"Heartbeat", "OffsetCommit"} and one.answered_ms > plan.start_ms + 20_000
    ]
    assert len(waited_ms) > 3 * 20 * 2
    assert max(waited_ms) <= 2_000


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_process_that_is_to_close_in_a_callback_closes_after_it(protocol: str) -> None:
    members = [replace(member, callback_ms=2_000) for member in _plan(protocol).members]
    for close_at_ms in range(2_000, 9_000, 1_500):
        closing = replace(members[0], close_at_ms=close_at_ms)
        history = World(_plan(protocol, members=(closing, *members[1:])), 2).run()
        assert [event.event for event in history.events if event.process == closing.name][-1] == "closed"
        assert _is_shared_out(history, _PARTITIONS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_process_that_hangs_does_nothing_and_goes_on_where_it_was(protocol: str) -> None:
    plan = _plan(protocol, keeps_requests=True)

    def hung(length_ms: int) -> History:
        hanging = replace(plan.members[1], hangs=(Hang(20_000, length_ms),))
        return World(replace(plan, members=(plan.members[0], hanging, plan.members[2])), 2).run()

    for length_ms in (5_000, 25_000):
        history = hung(length_ms)
        asked_ms = [one.arrived_ms - plan.start_ms for one in history.answered if one.process == "c1/1"]
        assert not [time for time in asked_ms if 20_010 < time < 20_000 + length_ms]
        assert any(time > 20_000 + length_ms for time in asked_ms)
        assert _is_shared_out(history, _PARTITIONS)
        assert violations(history) == []
        # Its session of 10 s outlasts the one, not the other.
        assert bool(history.removals) == (length_ms > 10_000)


@st.composite
def _faulty(draw: st.DrawFn) -> WorldPlan:
    """A world whose last fault is at 50 s and that goes on for two minutes."""
    plan = _plan(draw(st.sampled_from(sorted(PROTOCOLS))), end_ms=170_000)
    times = st.integers(1_000, 50_000)
    members = []
    for member in plan.members:
        fault = draw(st.sampled_from(("none", "crash", "close", "stall")))
        at_ms = draw(times)
        changes: dict[str, dict[str, Any]] = {
            "none": {},
            "crash": {"crash_at_ms": at_ms},
            "close": {"close_at_ms": at_ms},
            "stall": {"stalls": (Stall(at_ms, draw(st.integers(100, 45_000))),)},
        }
        members.append(replace(member, **changes[fault]))
    failovers = tuple(Failover(draw(times), draw(st.integers(0, 5_000))) for _ in range(draw(st.integers(0, 2))))
    survivor = MemberPlan("survivor", 1, "g", ("t",), draw(times), plan.members[0].properties)
    return replace(plan, members=(*members, survivor), failovers=failovers_apart(failovers))


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    phases=(Phase.generate,),
)
@given(_faulty(), st.integers(0, 2**32))
def test_after_the_last_fault_everything_has_one_owner_again(plan: WorldPlan, seed: int) -> None:
    assert _is_shared_out(World(plan, seed).run(), _PARTITIONS)


@st.composite
def _cut_off(draw: st.DrawFn) -> WorldPlan:
    """A faulty world in which a member is also cut off for a while, or its link is slow, or its process hangs."""
    plan = draw(_faulty())
    at_ms, length_ms = draw(st.integers(1_000, 90_000)), draw(st.integers(500, 40_000))
    faults: dict[str, dict[str, Any]] = {
        "none": {},
        "cut": {"cuts": (Cut(at_ms, length_ms),)},
        "slow": {"slow": (Slow(at_ms, length_ms, draw(st.integers(100, 12_000))),)},
        "hang": {"hangs": (Hang(at_ms, length_ms),)},
    }
    changes = faults[draw(st.sampled_from(sorted(faults)))]
    return replace(plan, members=(replace(plan.members[0], **changes), *plan.members[1:]))


@settings(
    max_examples=16,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    phases=(Phase.generate,),
)
@given(_cut_off(), st.integers(0, 2**32), st.sampled_from((0, 500)), st.sampled_from((0.0, 0.002)))
def test_what_only_repeats_itself_may_be_left_out(plan: WorldPlan, seed: int, cadence_ms: int, loss: float) -> None:
    """Also of one group while another one is disturbed, and before a leader has seen that its topic grew."""
    late = MemberPlan("late", 1, "g", ("t",), 200_000, plan.members[0].properties)
    calm = [
        MemberPlan(f"h{number}", 1, "h", ("u",), at_ms, PROTOCOLS["range"] | {"metadata.max.age.ms": 10_000})
        for number, at_ms in enumerate((0, 300) if seed % 2 else (0, 300, 44_321))
    ]
    growth = (TopicPlan("u", 5, 60_000 + seed % 30_000),) if seed % 2 else ()
    plan = replace(
        plan,
        members=(*plan.members, late, *calm),
        topics=(*plan.topics, TopicPlan("u", 3), *growth),
        end_ms=225_000,
        cadence_ms=cadence_ms,
        network=replace(plan.network, loss=loss),
    )
    whole, short = World(plan, seed, skips=False).run(), World(plan, seed).run()
    for group_id in ("g", "h"):
        happened = [[event for event in world.events if event.group_id == group_id] for world in (whole, short)]
        assert happened[0] == happened[1]
    assert whole.requests == short.requests
    puts_off = cadence_ms > 0 and plan.members[0].properties.get("group.protocol") == "consumer"
    if loss == 0 and not puts_off:
        assert len(short.decisions) < len(whole.decisions)


class _PollingOn(ApplicationLoops):
    """Applications that poll each tenth of a second also while a commit that is due waits for the last one's answer."""

    def _poll_after_commit(self, process: Process) -> None:
        pass

    def _plan_poll(self, process: Process) -> None:
        super()._plan_poll(process)
        if process.is_settled and process.idle_since_ms is not None:
            self._poll_at(process, self._agenda.now_ms + 100)


class _Counting(World):
    """A world that counts its applications' polls."""

    polls = 0

    def give(self, process: Process, event: inputs.Input) -> bool:
        self.polls += isinstance(event, inputs.Poll)
        return super().give(process, event)


class _CountingOn(_Counting):
    def _make_applications(self) -> Applications:
        return _PollingOn(self, self._agenda, Records(self._plan.topics, self._plan.start_ms), self.history)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_polls_that_wait_for_a_commit_make_no_difference(protocol: str, seed: int) -> None:
    """A member whose link is slow for a while commits as it would if its application asked each tenth of a second."""
    plan = _plan(protocol, topics=(TopicPlan("t", _PARTITIONS, records_s=20.0),))
    often = [
        replace(member, properties={**member.properties, "auto.commit.interval.ms": 1_000}) for member in plan.members
    ]
    slow = replace(often[0], slow=(Slow(20_000, 25_000, 1_700 + 90 * seed),))
    plan = replace(plan, members=(slow, *often[1:]))
    waiting, polling = _Counting(plan, seed), _CountingOn(plan, seed)
    happened = [(world.run().events, world.history.requests, world.history.commits) for world in (waiting, polling)]
    assert happened[0] == happened[1]
    assert (waiting.polls < polling.polls) == (protocol == "consumer")


def test_what_an_administrator_is_answered_is_kept_and_only_a_member_that_was_there_has_left() -> None:
    """c1 is removed, c2 when its session had expired, c0 while nobody is the coordinator."""
    first, second, third = _plan("range").members
    plan = _plan(
        "range",
        members=(first, second, replace(third, crash_at_ms=20_000)),
        removals=(Removal(10_000, "c1/1"), Removal(40_000, "c2/1"), Removal(50_000, "c0/1")),
        failovers=(Failover(49_000, 3_000),),
        keeps_requests=True,
    )
    history = World(plan, 1).run()
    answers = [kept.response for kept in history.answered if kept.process == ADMIN]
    assert [answer["errorCode"] for answer in answers] == [0, 0, Errors.NOT_COORDINATOR]
    told = [member["errorCode"] for answer in answers[:2] for member in answer["members"]]
    assert told == [0, Errors.UNKNOWN_MEMBER_ID]
    left = [one for one in simulated_rebalances(history, "g") if one.trigger == MEMBER_LEFT]
    assert [one.start_ms - plan.start_ms for one in left] == [10_000]


def test_an_epoch_has_its_cause_also_where_members_hear_of_it_late() -> None:
    """With heartbeats each 15 s: of a topic's growth, and of one that leaves."""
    first, second, third = _plan("consumer").members
    plan = _plan(
        "consumer",
        members=(first, second, replace(third, close_at_ms=78_000)),
        topics=(TopicPlan("t", _PARTITIONS), TopicPlan("t", _PARTITIONS + 1, 48_000)),
        settings=_SETTINGS
        | {"group.consumer.heartbeat.interval.ms": 15_000, "group.consumer.session.timeout.ms": 45_000},
        end_ms=120_000,
        keeps_requests=True,
    )
    found = simulated_rebalances(World(plan, 1).run(), "g", plan.topics_changed_ms())
    late = [(one.trigger, one.start_ms - plan.start_ms) for one in found if one.start_ms - plan.start_ms >= 40_000]
    assert [trigger for trigger, _ in late] == [TOPICS_CHANGED, MEMBER_LEFT]
    assert [round(start_ms / 1_000) for _, start_ms in late] == [48, 78]


def test_who_is_to_join_again_during_a_stall_does_when_it_goes_on() -> None:
    def joins_after(rejoins: tuple[tuple[int, int], ...], since_ms: int) -> list[int]:
        stalls = (Stall(20_000, 10_000),)
        member = MemberPlan("c", 1, "g", ("t",), 0, PROTOCOLS["range"], stalls=stalls, rejoins=rejoins)
        topics, network = (TopicPlan("t", 4),), NetworkPlan((1, 1))
        plan = WorldPlan((member,), topics, 60_000, SHORT_SESSIONS, network, keeps_requests=True)
        history = World(plan, 1).run()
        joins = (one.arrived_ms - plan.start_ms for one in history.answered if one.api == "JoinGroup")
        return [at_ms for at_ms in joins if at_ms > since_ms]

    assert joins_after((), 15_000) == []
    assert [30_000 <= at_ms < 30_100 for at_ms in joins_after(((15_000, 25_000),), 15_000)] == [True]
    # Whoever has joined again since isn't to do it once more.
    assert joins_after(((0, 25_000),), 15_000) == []
