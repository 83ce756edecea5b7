"""Whatever members, topics and coordinators do, the client-side mode stays sound, and comes to rest in bounded time."""

from __future__ import annotations

from enum import StrEnum

import pytest
from hypothesis import settings as profile
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.file import topic_id
from tests.groups.computing_member import CLIENT_SIDE, Computing, assignor, error_of, in_turns
from tests.groups.consumer_member import Consumer
from tests.groups.coordinators import OurCoordinator
from tests.groups.harness import World
from tests.nightly import some_or_many

pytestmark = pytest.mark.slow

REBALANCE_MS = 20_000
BEAT_MS = 5_000
MOST_MEMBERS = 5
MOST_PARTITIONS = 8


class Kind(StrEnum):
    """What a member does when it is told to compute."""

    ABLE = "computes"
    SLOW = "never comes back"
    FAILING = "installs an error"
    WRONG = "installs what can't be"
    PLAIN = "knows nothing of it"


class ClientAssignment(RuleBasedStateMachine):
    """One group. Members that live heartbeat at least every five seconds, whatever else they do."""

    @initialize()
    def begin(self) -> None:
        self.partitions = {"t0": 4, "t1": 2}
        coordinator = OurCoordinator(CLIENT_SIDE, self.topics())
        self.world = World(coordinator, coordinator.records)
        self.members: dict[str, tuple[Kind, Consumer]] = {}
        #: Assignments that were computed and not handed in yet, by member id.
        self.computed: dict[str, tuple[dict[str, dict[str, list[int]]], int]] = {}
        self.count = 0

    def topics(self) -> list[Topic]:
        return [Topic(name=name, partitions=count, id=topic_id(name)) for name, count in self.partitions.items()]

    # -- what happens ---------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.members) < MOST_MEMBERS)
    @rule(kind=st.sampled_from(Kind), topics=st.sampled_from([["t0"], ["t1"], ["t0", "t1"]]), static=st.booleans())
    def join(self, kind: Kind, topics: list[str], static: bool) -> None:
        self.count += 1
        self._join(kind, topics, f"i{self.count}" if static else None)

    def _join(self, kind: Kind, topics: list[str], instance: str | None) -> None:
        id_ = f"m{self.count}"
        member: Consumer
        if kind is Kind.PLAIN:
            member = Consumer(self.world, id_, topics, instance=instance, rebalance_ms=REBALANCE_MS)
        else:
            member = Computing(self.world, id_, topics, instance=instance, rebalance_ms=REBALANCE_MS)
        assert member.join().error == "NONE"
        self.members[id_] = kind, member

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.members)))
        assert self.members.pop(id_)[1].leave().error == "NONE"

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.members.pop(data.draw(st.sampled_from(sorted(self.members))))

    @precondition(lambda self: any(member.instance for _, member in self.members.values()))
    @rule(data=st.data(), kind=st.sampled_from(Kind))
    def come_back(self, data: st.DataObject, kind: Kind) -> None:
        """A static member restarts, perhaps as another release."""
        id_ = data.draw(st.sampled_from(sorted(id_ for id_, (_, member) in self.members.items() if member.instance)))
        _, member = self.members.pop(id_)
        member.leave(-2)
        self.count += 1
        self._join(kind, member.wishes["subscribedTopicNames"], member.instance)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def subscribe(self, data: st.DataObject) -> None:
        _, member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        member.wishes["subscribedTopicNames"] = data.draw(st.sampled_from([["t0"], ["t1"], ["t0", "t1"]]))
        assert member.beat(subscribedTopicNames=member.wishes["subscribedTopicNames"]).error == "NONE"

    @precondition(lambda self: any(kind is not Kind.PLAIN for kind, _ in self.members.values()))
    @rule(data=st.data(), reason=st.integers(0, 3))
    def ask_for_another_assignment(self, data: st.DataObject, reason: int) -> None:
        able = sorted(id_ for id_, (kind, _) in self.members.items() if kind is not Kind.PLAIN)
        _, member = self.members[data.draw(st.sampled_from(able))]
        member.wishes["clientAssignors"] = [assignor(reason=reason)]
        assert member.beat(clientAssignors=member.wishes["clientAssignors"]).error == "NONE"

    @rule(partitions=st.integers(1, MOST_PARTITIONS), topic=st.sampled_from(["t0", "t1"]))
    def change_topics(self, partitions: int, topic: str) -> None:
        """A topic grows, or is there again."""
        self.partitions[topic] = max(partitions, self.partitions.get(topic, 0))
        self.world.set_topics(*self.topics())

    @precondition(lambda self: "t1" in self.partitions)
    @rule()
    def delete_a_topic(self) -> None:
        del self.partitions["t1"]
        self.world.set_topics(*self.topics())

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        self._beat(data.draw(st.sampled_from(sorted(self.members))))

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        self._compute(data.draw(st.sampled_from(sorted(self.members))))

    @precondition(lambda self: self.computed)
    @rule(data=st.data())
    def hand_in_late(self, data: st.DataObject) -> None:
        """What was computed some time ago: the coordinator takes it or refuses it, and goes on."""
        id_ = data.draw(st.sampled_from(sorted(self.computed)))
        plan, epoch = self.computed.pop(id_)
        if id_ in self.members:
            _, member = self.members[id_]
            assert isinstance(member, Computing)
            assert error_of(member.install(plan, epoch)) in {
                "NONE",
                "UNKNOWN_MEMBER_ID",
                "STALE_MEMBER_EPOCH",
                "INVALID_ASSIGNMENT",
            }

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def prepare(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.members)))
        _, member = self.members[id_]
        if isinstance(member, Computing) and member.is_asked():
            prepared = member.prepare()
            if error_of(prepared) == "NONE":
                self.computed[id_] = in_turns(prepared.body), prepared.body["groupEpoch"]

    @rule(beats=st.integers(1, 5))
    def pass_time(self, beats: int) -> None:
        for _ in range(beats):
            self._round()

    @rule()
    def fail_over(self) -> None:
        self.world.fail_over()

    # -- what members do ------------------------------------------------------------------------------------------

    def _round(self) -> None:
        self.world.advance(BEAT_MS)
        for id_ in list(self.members):
            self._beat(id_)

    def _beat(self, id_: str) -> None:
        asked = self.members[id_][1].beat()
        assert asked.error == "NONE", "nobody who lives is fenced, however slow it is"

    def _compute(self, id_: str) -> None:
        kind, member = self.members[id_]
        if not isinstance(member, Computing) or not member.is_asked() or kind is Kind.SLOW:
            return
        prepared = member.prepare()
        if error_of(prepared) != "NONE":
            assert error_of(prepared) in {"UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH"}
            return
        plan, epoch = in_turns(prepared.body), prepared.body["groupEpoch"]
        if kind is Kind.FAILING:
            assert error_of(member.install({}, epoch, error=7)) == "NONE"
        elif kind is Kind.WRONG:
            assert error_of(member.install({"nobody": {}}, epoch)) == "INVALID_ASSIGNMENT"
        else:
            assert error_of(member.install(plan, epoch)) == "NONE"

    # -- what holds -----------------------------------------------------------------------------------------------

    @invariant()
    def nothing_has_two_owners(self) -> None:
        if not hasattr(self, "world"):
            return
        owned = [
            (topic, partition)
            for _, member in self.members.values()
            for topic, partitions in member.owned.items()
            for partition in partitions
        ]
        assert len(owned) == len(set(owned))
        inside = self.world.inside()
        held = [
            (topic, partition)
            for member in (() if inside is None else inside["members"])
            for kind in ("assignedPartitions", "partitionsPendingRevocation")
            for topic, partitions in member[kind].items()
            for partition in partitions
        ]
        assert len(held) == len(set(held))

    def teardown(self) -> None:
        """Nothing more happens: with a member that can compute the group is where it should be, and in time."""
        if not hasattr(self, "world") or not self.members:
            return
        kinds = [kind for kind, _ in self.members.values()]
        if Kind.SLOW in kinds and Kind.ABLE not in kinds and Kind.PLAIN not in kinds:
            return
        # The dead have to be found out, each slow member is waited for once, and then what moves is given up and taken.
        bound_ms = 45_000 + kinds.count(Kind.SLOW) * (REBALANCE_MS + 2 * BEAT_MS) + 8 * BEAT_MS
        for _ in range(bound_ms // BEAT_MS):
            self._round()
            for id_ in list(self.members):
                self._compute(id_)
        inside = self.world.inside()
        assert inside is not None
        assert (inside["state"], inside["assignmentEpoch"]) == ("Stable", inside["groupEpoch"])
        if Kind.ABLE in kinds or Kind.PLAIN in kinds:
            wanted = {name for _, member in self.members.values() for name in member.wishes["subscribedTopicNames"]}
            everything = {(name, n) for name in wanted & self.partitions.keys() for n in range(self.partitions[name])}
            owned = {(name, n) for _, member in self.members.values() for name, ns in member.owned.items() for n in ns}
            assert owned == everything


TestClientAssignment = ClientAssignment.TestCase
TestClientAssignment.settings = profile(
    max_examples=some_or_many(15, 200), stateful_step_count=30, deadline=None, derandomize=True
)
