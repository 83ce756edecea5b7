"""Whatever happens to a member, it stays sound, and once nothing more goes wrong it is stable again in bounded time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import settings as profile
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.inputs import (
    CallbackError,
    CommitAsync,
    CommitSync,
    Poll,
    Seek,
    Subscribe,
    TopicPartition,
    Unsubscribe,
)
from coordinator_udf.members.outputs import Callback, ErrorRaised, OperationDone, Output, Request
from tests.members.consumer.world import (
    PARTITIONS,
    TOPIC_IDS,
    OneMembersCoordinator,
    Target,
    World,
    cluster,
    commit_answer,
    coordinator_answer,
    heartbeat_answer,
    settings,
)

TOPICS = tuple(sorted(TOPIC_IDS))
NAMES = {topic_id: name for name, topic_id in TOPIC_IDS.items()}
HEARTBEAT_INTERVAL_MS = 1_000
POLL_EVERY_MS = 100
ROUND_TRIP_MS = 25
FAILED = CallbackError("IllegalStateException", "scripted")

#: Errors that a member gets over. After the last two the coordinator doesn't know it any more.
heartbeat_errors = st.sampled_from([14, 15, 16, 29, 25, 110])
commit_errors = st.sampled_from([3, 7, 14, 15, 16, 22, 25, 27, 100, 113])
targets = st.fixed_dictionaries({topic: st.frozensets(st.integers(0, PARTITIONS - 1)) for topic in TOPICS})
subscriptions = st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda topics: tuple(sorted(topics)))
views = st.sets(st.sampled_from(TOPICS)).map(lambda topics: cluster(*sorted(topics)))


def bound_ms(config: MemberConfig) -> int:
    """Returns how long a member may take to be stable again, with this world's round trips and polls.

    A request that is never answered is given up after its timeout: first a heartbeat, then a commit that holds up the
    reconciliation. FindCoordinator, heartbeat, commit and metadata each wait out one backoff at most, and a heartbeat
    its interval, once for the target that the member had and once for the one that it should have.
    """
    lost_ms = 2 * config.request_timeout_ms
    waits_ms = 2 * (4 * config.retry_backoff_max_ms + HEARTBEAT_INTERVAL_MS)
    return lost_ms + waits_ms + 10 * (POLL_EVERY_MS + ROUND_TRIP_MS)


def _partitions(body: Mapping[str, Any]) -> set[TopicPartition]:
    """Returns the partitions of an OffsetCommit."""
    return {
        TopicPartition(topic.get("name") or NAMES[topic["topicId"]], each["partitionIndex"])
        for topic in body["topics"]
        for each in topic["partitions"]
    }


class MemberUnderFaults(RuleBasedStateMachine):
    """A member, its coordinator, its application, and what may go wrong between them."""

    @initialize(
        auto_commit=st.booleans(),
        instance=st.sampled_from([None, "i0"]),
        poll=st.sampled_from([1_500, 30_000]),
        joined=st.sampled_from([True, True, False]),
    )
    def start(self, *, auto_commit: bool, instance: str | None, poll: int, joined: bool) -> None:
        named = {} if instance is None else {"group_instance_id": instance}
        config = settings(
            enable_auto_commit=auto_commit,
            auto_commit_interval_ms=700,
            max_poll_interval_ms=poll,
            request_timeout_ms=2_000,
            **named,
        )
        self.owned: set[TopicPartition] = set()
        self.given: set[TopicPartition] = set()
        self.assigned_before: set[TopicPartition] = set()
        self.waiting_before: set[TopicPartition] = set()
        self.blocked = False
        self.topics: tuple[str, ...] = TOPICS
        self.coordinator = OneMembersCoordinator({"t0": frozenset({0, 1}), "t1": frozenset({0})})
        self.world = World(config)
        self.world.on_output = self._check_output
        self.world.after_input = self._check_commits
        self.world.give(Subscribe(TOPICS))
        if joined:
            self.carry_on(600)

    # ---- what is always true

    def _check_output(self, output: Output) -> None:
        match output:
            case Callback(method, partitions):
                assert self.world.callbacks == [output], "two callbacks at once"
                if method == "onPartitionsAssigned":
                    unrevoked = (self.assigned_before - self._assigned()) & self.owned
                    assert not unrevoked, "assigned before it revoked"
                    self.owned |= set(partitions)
                    self.given |= set(partitions)
                else:
                    # What was revoked is assigned until the next assignment is in effect: its callback may come again;
                    # and what is lost was listed before an assignment that was on its way took effect.
                    lost = method == "onPartitionsLost"
                    had = self.owned | (self.given if lost else self.assigned_before)
                    assert set(partitions) <= had, "gave up what it didn't have"
                    self.owned -= set(partitions)
            case Request(api="OffsetCommit", body=body):
                known = self.assigned_before | self._assigned() | self.waiting_before
                assert _partitions(body) <= known, "committed what it has lost"
            case OperationDone() | ErrorRaised(op="commitSync" | "unsubscribe"):
                self.blocked = False
            case _:
                pass

    def _assigned(self) -> set[TopicPartition]:
        parts = self.world.member._made
        return set() if parts is None else parts.subscriptions.assigned_partitions()

    def _check_commits(self) -> None:
        """A commit is made of what is assigned, though one that waits may be sent when that is lost, as Kafka's is."""
        parts = self.world.member._made
        assert parts is not None
        waiting = {partition for commit in parts.thread._commits._unsent for partition in commit.offsets}
        assert waiting <= self._assigned() | self.waiting_before | self.assigned_before
        self.waiting_before, self.assigned_before = waiting, self._assigned()

    # ---- the application

    def _is_free(self) -> bool:
        return not self.blocked and not self.world.callbacks

    @precondition(_is_free)
    @rule()
    def poll(self) -> None:
        self.world.give(Poll())

    @precondition(lambda self: self.world.callbacks)
    @rule(error=st.sampled_from([None, None, FAILED]))
    def end_callback(self, error: CallbackError | None) -> None:
        self.world.end_callback(error)

    @precondition(_is_free)
    @rule(topics=subscriptions)
    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self.world.give(Subscribe(topics))

    @precondition(_is_free)
    @rule(really=st.integers(0, 5))
    def unsubscribe(self, really: int) -> None:
        if really:
            return
        self.blocked = True
        self.topics = ()
        self.world.give(Unsubscribe())

    @precondition(_is_free)
    @rule(offset=st.integers(0, 9))
    def consume(self, offset: int) -> None:
        self.world.give(Seek(dict.fromkeys(self.world.assigned(), offset)))

    @precondition(_is_free)
    @rule()
    def commit_async(self) -> None:
        self.world.give(CommitAsync())

    @precondition(_is_free)
    @rule(timeout_ms=st.sampled_from([0, 500, 3_000]))
    def commit_sync(self, timeout_ms: int) -> None:
        self.blocked = True
        self.world.give(CommitSync(timeout_ms))

    # ---- the network and the brokers

    @rule(ms=st.sampled_from([1, 10, 100, 400, 1_100, 2_500]))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)

    @precondition(lambda self: self.world.requests("ConsumerGroupHeartbeat"))
    @rule(error=st.none() | heartbeat_errors)
    def answer_heartbeat(self, error: int | None) -> None:
        body = self.world.requests("ConsumerGroupHeartbeat")[0].body
        if error in {25, 110}:
            self.coordinator.forget()
        answer = self.coordinator.heartbeat(body) if error is None else heartbeat_answer(errorCode=error)
        self.world.answer("ConsumerGroupHeartbeat", answer)

    @precondition(lambda self: self.world.requests("FindCoordinator"))
    @rule(error=st.sampled_from([0, 0, 14, 15]))
    def answer_find_coordinator(self, error: int) -> None:
        self.world.answer("FindCoordinator", coordinator_answer(error))

    @precondition(lambda self: self.world.requests("OffsetCommit"))
    @rule(error=st.just(0) | commit_errors)
    def answer_commit(self, error: int) -> None:
        self.world.answer("OffsetCommit", commit_answer(self.world.requests("OffsetCommit")[0].body, error))

    @rule(node=st.sampled_from(["coordinator-0", "broker-0"]))
    def disconnect(self, node: str) -> None:
        self.world.disconnect(node)

    @precondition(lambda self: self.world.metadata_wanted)
    @rule(view=views)
    def tell_metadata(self, view: Any) -> None:
        self.world.view = view
        self.world.tell_metadata()

    @rule(assigned=targets)
    def change_target(self, assigned: Target) -> None:
        self.coordinator.change_target(assigned)

    @rule()
    def throw_out(self) -> None:
        self.coordinator.forget()

    @rule(ms=st.sampled_from([20, 100, 300]))
    def carry_on(self, ms: int) -> None:
        """Lets everything go well for a while."""
        end_ms = self.world.now_ms + ms
        while self.world.now_ms < end_ms:
            self._all_goes_well()

    # ---- once nothing goes wrong any more

    def teardown(self) -> None:
        """Lets everything go well, and expects a stable member with its assignment within the bound."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.view = cluster(*TOPICS)
        end_ms = world.now_ms + bound_ms(world.config)
        while world.now_ms < end_ms and not self._is_settled():
            self._all_goes_well()
        assert self._is_settled(), f"{world.state} after {bound_ms(world.config)} ms"

    def _all_goes_well(self) -> None:
        world = self.world
        if self._is_free() and not self.topics:
            self.subscribe(TOPICS)
            return
        wanted = {topic: numbers for topic, numbers in self.coordinator.target.items() if topic in self.topics}
        if wanted != self.coordinator.target:
            self.coordinator.change_target(wanted)
        if self._is_free() and world.now_ms % POLL_EVERY_MS < ROUND_TRIP_MS:
            self.poll()
        while world.callbacks:
            self.end_callback(None)
        if world.metadata_wanted:
            world.tell_metadata()
        for api in ("FindCoordinator", "ConsumerGroupHeartbeat", "OffsetCommit"):
            for request in world.requests(api):
                self._answer_well(request)
        world.pass_time(ROUND_TRIP_MS)

    def _answer_well(self, request: Request) -> None:
        match request.api:
            case "FindCoordinator":
                self.world.answer(request.api, coordinator_answer())
            case "ConsumerGroupHeartbeat":
                self.world.answer(request.api, self.coordinator.heartbeat(request.body))
            case _:
                self.world.answer(request.api, commit_answer(request.body))

    def _is_settled(self) -> bool:
        state = self.world.state
        assert state is not None
        wanted = {
            TopicPartition(topic, number) for topic, numbers in self.coordinator.target.items() for number in numbers
        }
        return (
            state.state == "STABLE"
            and not state.to_reconcile
            and set(state.assignment) == wanted
            and self._is_free()
            and not self.world.requests("ConsumerGroupHeartbeat")
        )


MemberUnderFaults.TestCase.settings = profile(max_examples=60, stateful_step_count=40)
TestMemberUnderFaults = MemberUnderFaults.TestCase
