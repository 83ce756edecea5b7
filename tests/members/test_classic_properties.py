"""Whatever happens to a classic member, in whichever order, it keeps its promises and comes back."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator_udf.members import inputs
from coordinator_udf.members.classic.states import MemberState
from tests.members.classic_world import FAILED_JOIN, TIMES_MS, World, commit_answer, partitions_of

STRATEGIES = ("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor")
#: All but FENCED_INSTANCE_ID, after which a member with an instance id is to stay away; 4711 is no code of Kafka's.
ERRORS = (-1, 3, 7, 12, 14, 15, 16, 22, 23, 24, 25, 26, 27, 29, 30, 35, 42, 79, 81, 113, 4711)
#: Of what an answer may lack, or bring instead. An assignment of less than two bytes isn't among it: with that Kafka's
#: member is stable, and each poll throws.
NONSENSE: tuple[dict[str, Any], ...] = (
    {},
    {"errorCode": "none"},
    {"errorCode": 0, "members": [{}]},
    {"errorCode": 0, "generationId": 1, "protocolName": "range", "leader": 5, "memberId": "", "members": []},
    {"errorCode": 0, "assignment": "no base64"},
    {"coordinators": []},
    {"topics": [{"name": "t0"}]},
)
#: What may have to end first: the session, a lookup each backoff, an automatic commit that is tried until the
#: application's interval is over, and metadata after its backoff.
BOUND_MS = (
    TIMES_MS["session.timeout.ms"]
    + TIMES_MS["max.poll.interval.ms"]
    + TIMES_MS["request.timeout.ms"]
    + 20 * TIMES_MS["retry.backoff.max.ms"]
)


class ClassicMemberMachine(RuleBasedStateMachine):
    """Polls, answers, errors, losses, stalls, callbacks that take long or throw, topics that come and go."""

    @initialize(strategy=st.sampled_from(STRATEGIES), auto_commit=st.booleans(), static=st.booleans())
    def begin(self, strategy: str, *, auto_commit: bool, static: bool) -> None:
        self.world = World(strategy, auto_commit=auto_commit, static=static)
        self.largest = dict(self.world.partitions)
        self.world.call(inputs.Subscribe(("t0", "t1")))

    @rule(times=st.integers(1, 5))
    def live_well_for_a_while(self, times: int) -> None:
        for _ in range(times):
            self.poll()
            if self.world.callback is not None:
                self.world.end_callback()
            if self.world.wants_metadata:
                self.world.give_metadata()
            for req in list(self.world.in_flight):
                if req in self.world.in_flight:
                    self.world.answer(req)
            self.world.pass_time(50)

    @rule()
    def poll(self) -> None:
        self.world.call(inputs.Poll())

    @rule(duration_ms=st.sampled_from((1, 50, 100, 700, 2_000, 6_500, 10_000)))
    def wait(self, duration_ms: int) -> None:
        self.world.pass_time(duration_ms)

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self.world.answer(data.draw(st.sampled_from(sorted(self.world.in_flight))))

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data(), error=st.sampled_from(ERRORS))
    def fail(self, data: st.DataObject, error: int) -> None:
        req = data.draw(st.sampled_from(sorted(self.world.in_flight)))
        request = self.world.in_flight[req]
        if request.api == "OffsetCommit":
            self.world.answer(req, commit_answer(request, error))
        elif request.api == "FindCoordinator":
            self.world.answer(req, {"coordinators": [{"errorCode": error, "nodeId": -1}]})
        else:
            self.world.answer(req, {**FAILED_JOIN, "errorCode": error, "memberId": "m-made-up", "assignment": ""})

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data(), body=st.sampled_from(NONSENSE))
    def answer_nonsense(self, data: st.DataObject, body: dict[str, Any]) -> None:
        self.world.answer(data.draw(st.sampled_from(sorted(self.world.in_flight))), body)

    @rule(node=st.sampled_from(("coordinator-0", "broker-0")))
    def disconnect(self, node: str) -> None:
        self.world.disconnect(node)

    @precondition(lambda self: self.world.wants_metadata)
    @rule()
    def give_metadata(self) -> None:
        self.world.give_metadata()

    @rule(topic=st.sampled_from(("t0", "t1", "t2")), more=st.integers(0, 3))
    def change_topics(self, topic: str, more: int) -> None:
        """Makes a topic larger, or deletes it; it comes back at least as large (see the assignors' tests)."""
        self.largest[topic] = self.largest.get(topic, 1) + more
        self.world.partitions.pop(topic, None)
        if more:
            self.world.partitions[topic] = self.largest[topic]

    @precondition(lambda self: self.world.callback)
    @rule(throws=st.booleans())
    def end_callback(self, *, throws: bool) -> None:
        self.world.end_callback(throws=throws)

    @rule(topics=st.sampled_from((("t0",), ("t0", "t1"), ("t1", "t2"))))
    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.world.call(inputs.Subscribe(topics))

    @rule()
    def unsubscribe(self) -> None:
        self.world.call(inputs.Unsubscribe())

    @rule()
    def enforce_rebalance(self) -> None:
        self.world.call(inputs.EnforceRebalance())

    @rule(waits=st.booleans())
    def commit(self, *, waits: bool) -> None:
        self.world.call(inputs.CommitSync(500) if waits else inputs.CommitAsync())

    @rule()
    def forget_the_group(self) -> None:
        self.world.coordinator.generation += 3
        self.world.coordinator.member_id = "m-other"

    @invariant()
    def holds_what_it_says(self) -> None:
        world = getattr(self, "world", None)
        if world is not None and world.state is not None and world.callback is None and not world.in_flight:
            assert set(world.state.assignment) <= world.held

    def teardown(self) -> None:
        world = getattr(self, "world", None)
        if world is None:
            return
        world.partitions = {"t2": 1, **self.largest}
        if world.callback is not None:
            world.end_callback()
        world.pass_time(600)
        if any(error.op == "unsubscribe" for error in world.errors):
            # See test_a_member_whose_unsubscribe_threw_has_nothing_until_it_unsubscribes.
            world.call(inputs.Unsubscribe())
            if world.callback is not None:
                world.end_callback()
        world.call(inputs.Subscribe(("t0", "t1")))
        world.heal(BOUND_MS)


ClassicMemberMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
TestClassicMember = ClassicMemberMachine.TestCase


def _without_coordinator(*, auto_commit: bool) -> World:
    """A member that has partitions, and has just lost its coordinator while a heartbeat was on its way."""
    world = World("StickyAssignor", auto_commit=auto_commit, static=True)
    world.call(inputs.Subscribe(("t0", "t1")))
    world.heal(BOUND_MS)
    world.pass_time(TIMES_MS["heartbeat.interval.ms"])
    world.disconnect("coordinator-0")
    assert world.state is not None
    assert (world.state.coordinator, world.in_flight) == (None, {})
    return world


def test_a_commit_that_waits_for_the_coordinator_is_sent_after_the_member_has_given_up_its_partitions() -> None:
    """As Kafka's is, and as one of a consumer without a group then (ConsumerCoordinator.sendOffsetCommitRequest)."""
    world = _without_coordinator(auto_commit=False)
    held = set(world.held)
    world.call(inputs.CommitAsync())
    world.call(inputs.Unsubscribe())
    world.end_callback()
    assert not world.held
    (lookup,) = world.in_flight
    world.answer(lookup)
    (commit,) = world.in_flight.values()
    assert (commit.api, partitions_of(commit)) == ("OffsetCommit", held)
    assert (commit.body["generationIdOrMemberEpoch"], commit.body["memberId"]) == (-1, "")
    assert commit.body["groupInstanceId"] is None


def test_what_a_commit_may_be_made_of_is_forgotten_with_its_lookup() -> None:
    """So the property is as strict as ever for what is committed later."""
    world = _without_coordinator(auto_commit=True)
    world.call(inputs.CommitAsync())
    (lookup,) = world.held_at_lookup
    world.answer(lookup)
    assert not world.held_at_lookup


def test_a_member_whose_unsubscribe_threw_has_nothing_until_it_unsubscribes() -> None:
    """As Kafka's: it is in its group, and for the topics that it joined with it doesn't join again (onLeavePrepare)."""
    world = World("RangeAssignor", auto_commit=False, static=False)
    world.call(inputs.Subscribe(("t0", "t1")))
    world.heal(BOUND_MS)
    world.call(inputs.Unsubscribe())
    world.end_callback(throws=True)
    assert [error.op for error in world.errors] == ["unsubscribe"]
    world.call(inputs.Subscribe(("t0", "t1")))
    for _ in range(10):
        world.call(inputs.Poll())
        world.pass_time(100)
    assert world.state is not None
    assert (world.state.state, world.state.assignment) == (MemberState.STABLE, ())
    assert not world.is_well()
    world.call(inputs.Unsubscribe())
    world.call(inputs.Subscribe(("t0", "t1")))
    world.heal(BOUND_MS)
