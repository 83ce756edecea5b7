"""A member that is told to compute its group's assignment (KIP-848's client-side mode)."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import pytest

from coordinator_udf.members.client_assignors.range import RangeAssignor
from coordinator_udf.members.client_assignors.spec import Assignment, ClientAssignor, ClusterTopics, MemberSubscription
from coordinator_udf.members.client_assignors.sticky import CooperativeStickyAssignor
from coordinator_udf.members.consumer.computation_states import (
    TRANSITIONS,
    ComputationEvent,
    ComputationState,
    next_state,
)
from coordinator_udf.members.consumer.member import ConsumerMember
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.inputs import Close, Subscribe, Tick
from coordinator_udf.members.outputs import Assign, ErrorRaised, OnAssignment
from coordinator_udf.protocol.errors import Errors
from tests.members.consumer.world import (
    MEMBER_ID,
    TOPIC_IDS,
    World,
    assignment,
    coordinator_answer,
    heartbeat_answer,
    settings,
)

HEARTBEAT, PREPARE, INSTALL = (
    "ConsumerGroupHeartbeat",
    "ConsumerGroupPrepareAssignment",
    "ConsumerGroupInstallAssignment",
)


class Failing(ClientAssignor):
    """An assignor of a user that raises."""

    @property
    def name(self) -> str:
        return "failing"

    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Assignment]:
        raise ZeroDivisionError("of the user")


class Telling(RangeAssignor):
    """Range, with user data both ways."""

    why = 0
    says = b"up"

    @property
    def reason(self) -> int:
        return self.why

    def subscription_user_data(self, topics: Any) -> bytes:
        return self.says

    def assign(self, cluster: ClusterTopics, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, Assignment]:
        heard = b"+".join(subscription.user_data or b"" for subscription in subscriptions.values())
        return {
            member: Assignment(given.partitions, heard)
            for member, given in super().assign(cluster, subscriptions).items()
        }


def a_world(*assignors: ClientAssignor, **properties: object) -> World:
    """A member with assignors that has joined, and has been told to compute."""
    world = World(settings(**properties))
    world.member = ConsumerMember(world.config, lambda: 1.0, member_id=MEMBER_ID, assignors=assignors)
    world.open.clear()
    world.give(Tick())
    world.give(Subscribe(("t0",)))
    world.poll()
    world.answer("FindCoordinator", coordinator_answer())
    return world


def told(world: World, epoch: int = 1, **fields: Any) -> None:
    world.answer(
        HEARTBEAT,
        heartbeat_answer(memberEpoch=epoch, assignment=assignment({}), shouldComputeAssignment=True, **fields),
    )


def prepared(name: str = "range", **changes: Any) -> dict[str, Any]:
    """A group of this member and another one that has half of t0."""
    member: dict[str, Any] = {
        "memberEpoch": 1,
        "instanceId": None,
        "rackId": None,
        "subscribedTopicIds": [TOPIC_IDS["t0"]],
    }
    member |= {"reason": 0, "metadataVersion": 0, "metadata": "", "partitions": []}
    owned = [{"topicId": TOPIC_IDS["t0"], "partitions": [0, 1, 2, 3]}]
    return {
        "throttleTimeMs": 0,
        "errorCode": 0,
        "errorMessage": None,
        "groupEpoch": 7,
        "assignorName": name,
        "assignorVersion": 0,
        "members": [{**member, "memberId": MEMBER_ID}, {**member, "memberId": "other", "partitions": owned}],
        "topics": [{"topicId": TOPIC_IDS["t0"], "topicName": "t0", "numPartitions": 4, "racks": []}],
        **changes,
    }


def failed(error: Errors) -> dict[str, Any]:
    return prepared(errorCode=int(error), members=[], topics=[])


def installed(error: Errors = Errors.NONE) -> dict[str, Any]:
    return {"throttleTimeMs": 0, "errorCode": int(error), "errorMessage": None}


def shared(body: Mapping[str, Any]) -> dict[str, list[int]]:
    return {
        member["memberId"]: sorted(number for topic in member["partitions"] for number in topic["partitions"])
        for member in body["members"]
    }


@pytest.mark.parametrize("state", ComputationState)
@pytest.mark.parametrize("event", ComputationEvent)
def test_what_the_table_lacks_cannot_happen(state: ComputationState, event: ComputationEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(ClientException, match=f"{state} by {event}"):
            next_state(state, event)


def test_a_member_says_what_it_supports_when_it_joins_and_not_again() -> None:
    world = a_world(RangeAssignor(), CooperativeStickyAssignor())
    (joining,) = world.requests(HEARTBEAT)
    assert [each["name"] for each in joining.body["clientAssignors"]] == ["range", "cooperative-sticky"]
    assert joining.body["clientAssignors"][0] == {
        "name": "range", "minimumVersion": -1, "maximumVersion": 0, "reason": 0, "metadataVersion": 0, "metadata": "",
    }  # fmt: skip
    world.answer(HEARTBEAT, heartbeat_answer(assignment=assignment({})))
    world.pass_time(1_000)
    assert "clientAssignors" not in world.requests(HEARTBEAT)[0].body


@pytest.mark.parametrize("versions", [{HEARTBEAT: 1}, {HEARTBEAT: 0, PREPARE: 0}])
def test_a_broker_without_the_mode_is_told_nothing(versions: dict[str, int]) -> None:
    world = a_world(RangeAssignor(), maxVersions=versions)
    assert "clientAssignors" not in world.requests(HEARTBEAT)[0].body


def test_a_member_without_assignors_says_nothing() -> None:
    world = a_world()
    assert "clientAssignors" not in world.requests(HEARTBEAT)[0].body


def test_it_prepares_computes_and_installs() -> None:
    world = a_world(RangeAssignor())
    told(world)
    (asked,) = world.requests(PREPARE)
    assert (asked.body, asked.to) == ({"groupId": "g", "memberId": MEMBER_ID, "memberEpoch": 1}, "coordinator-0")
    world.answer(PREPARE, prepared())
    (install,) = world.requests(INSTALL)
    assert (install.body["groupEpoch"], install.body["error"]) == (7, 0)
    assert sorted(map(len, shared(install.body).values())) == [2, 2]
    assert any(isinstance(output, Assign) for output in world.seen)
    world.answer(INSTALL, installed())
    world.pass_time(1_000)
    assert not world.requests(PREPARE)


def test_what_moves_is_in_the_assignment_at_once() -> None:
    """The coordinator waits for what is to be given up; a cooperative assignor alone would hold it back."""
    world = a_world(CooperativeStickyAssignor())
    told(world)
    world.answer(PREPARE, prepared("cooperative-sticky"))
    (install,) = world.requests(INSTALL)
    mine, others = (shared(install.body)[member] for member in (MEMBER_ID, "other"))
    assert (len(mine), len(others), sorted(mine + others)) == (2, 2, [0, 1, 2, 3])


def test_told_again_it_goes_on_with_what_it_does() -> None:
    world = a_world(RangeAssignor())
    told(world)
    world.pass_time(1_000)
    told(world)
    assert len(world.requests(PREPARE)) == 1
    world.answer(PREPARE, prepared())
    assert len(world.requests(INSTALL)) == 1


def test_user_data_goes_both_ways() -> None:
    world = a_world(Telling())
    assert b64decode(world.requests(HEARTBEAT)[0].body["clientAssignors"][0]["metadata"]) == b"up"
    told(world)
    members = [{**member, "metadata": "dXA="} for member in prepared()["members"]]
    world.answer(PREPARE, prepared(members=members))
    (install,) = world.requests(INSTALL)
    assert {b64decode(member["metadata"]) for member in install.body["members"]} == {b"up+up"}
    assert {member["metadataVersion"] for member in install.body["members"]} == {0}
    given = {**assignment({"t0": frozenset({0})}), "metadataVersion": 0, "metadata": "dXArdXA="}
    world.pass_time(1_000)
    world.answer(HEARTBEAT, heartbeat_answer(memberEpoch=7, assignment=given))
    if world.metadata_wanted:
        world.tell_metadata()
    world.poll()
    assert [output.assignor for output in world.seen if isinstance(output, OnAssignment)][-1] == "range"


def test_another_reason_is_told_with_metadata_as_of_then() -> None:
    telling = Telling()
    world = a_world(telling)
    world.answer(HEARTBEAT, heartbeat_answer(assignment=assignment({})))
    telling.says = b"later"
    world.pass_time(1_000)
    assert "clientAssignors" not in world.requests(HEARTBEAT)[0].body
    world.answer(HEARTBEAT, heartbeat_answer())
    telling.why = 4
    world.pass_time(1_000)
    (told_anew,) = world.requests(HEARTBEAT)[0].body["clientAssignors"]
    assert (told_anew["reason"], b64decode(told_anew["metadata"])) == (4, b"later")


def test_an_assignor_that_raises_is_told_to_all_and_to_the_application() -> None:
    world = a_world(Failing())
    told(world)
    world.answer(PREPARE, prepared("failing"))
    (install,) = world.requests(INSTALL)
    assert (install.body["error"], install.body["members"]) == (1, [])
    world.poll()
    assert world.errors() == ["KafkaException"]
    (error,) = [output for output in world.seen if isinstance(output, ErrorRaised)]
    assert error.cause_class == "ZeroDivisionError"


def test_an_assignor_that_is_not_the_members_is_an_error() -> None:
    world = a_world(RangeAssignor())
    told(world)
    world.answer(PREPARE, prepared("somebody's"))
    assert world.requests(INSTALL)[0].body["error"] == 1


def test_an_error_of_the_groups_assignor_reaches_the_application_once() -> None:
    world = a_world(RangeAssignor())
    for _ in range(3):
        world.answer(HEARTBEAT, heartbeat_answer(assignment={**assignment({}), "error": 7}))
        world.poll()
        world.pass_time(1_000)
    assert world.errors() == ["KafkaException"]


def test_with_a_stale_epoch_it_waits_for_the_next_heartbeat() -> None:
    world = a_world(RangeAssignor())
    told(world)
    world.answer(PREPARE, failed(Errors.STALE_MEMBER_EPOCH))
    assert not world.requests(PREPARE)
    world.pass_time(1_000)
    told(world, epoch=2)
    assert world.requests(PREPARE)[0].body["memberEpoch"] == 2
    world.answer(PREPARE, prepared())
    world.answer(INSTALL, installed(Errors.STALE_MEMBER_EPOCH))
    world.pass_time(1_000)
    world.answer(HEARTBEAT, heartbeat_answer(memberEpoch=3))
    assert not world.requests(PREPARE), "it isn't told any more"


@pytest.mark.parametrize("error", [Errors.UNKNOWN_MEMBER_ID, Errors.GROUP_ID_NOT_FOUND, Errors.INVALID_REQUEST])
def test_who_is_refused_gives_up(error: Errors) -> None:
    world = a_world(RangeAssignor())
    told(world)
    world.answer(PREPARE, failed(error))
    assert not world.requests(PREPARE)
    world.pass_time(1_000)
    told(world)
    world.answer(PREPARE, prepared())
    world.answer(INSTALL, installed(error))
    assert not world.requests(PREPARE) + world.requests(INSTALL)


def test_an_invalid_assignment_is_given_up() -> None:
    world = a_world(RangeAssignor())
    told(world)
    world.answer(PREPARE, prepared())
    world.answer(INSTALL, installed(Errors.INVALID_ASSIGNMENT))
    world.pass_time(500)
    assert not world.requests(PREPARE)


@pytest.mark.parametrize("error", [Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE])
def test_another_coordinator_is_looked_for(error: Errors) -> None:
    world = a_world(RangeAssignor())
    told(world)
    world.answer(PREPARE, failed(error))
    assert not world.requests(PREPARE)
    world.pass_time(200)
    world.answer("FindCoordinator", coordinator_answer())
    assert len(world.requests(PREPARE)) == 1


def test_a_coordinator_that_loads_is_asked_again_after_a_pause() -> None:
    world = a_world(RangeAssignor())
    told(world)
    world.answer(PREPARE, failed(Errors.COORDINATOR_LOAD_IN_PROGRESS))
    assert not world.requests(PREPARE)
    world.pass_time(200)
    assert len(world.requests(PREPARE)) == 1


def test_a_lost_connection_begins_it_anew() -> None:
    world = a_world(RangeAssignor())
    told(world)
    world.answer(PREPARE, prepared())
    world.disconnect("coordinator-0")
    world.pass_time(200)
    world.answer("FindCoordinator", coordinator_answer())
    world.pass_time(200)
    assert world.requests(PREPARE)


def test_who_is_fenced_computes_nothing_any_more() -> None:
    world = a_world(RangeAssignor())
    told(world)
    world.pass_time(1_000)
    world.answer(HEARTBEAT, heartbeat_answer(errorCode=int(Errors.UNKNOWN_MEMBER_ID), memberEpoch=0))
    world.poll()
    world.answer(PREPARE, prepared())
    assert not world.requests(INSTALL)
    assert world.requests(HEARTBEAT)[0].body["memberEpoch"] == 0


def test_who_leaves_computes_nothing_any_more() -> None:
    world = a_world(RangeAssignor())
    told(world)
    world.give(Close(1_000))
    while world.callbacks:
        world.end_callback()
    world.answer(PREPARE, prepared())
    assert not world.requests(INSTALL)


def test_the_settings_name_assignors() -> None:
    world = World(settings(group_local_assignors="org.apache.kafka.clients.consumer.RoundRobinAssignor"))
    world.give(Subscribe(("t0",)))
    world.poll()
    world.answer("FindCoordinator", coordinator_answer())
    assert world.requests(HEARTBEAT)[0].body["clientAssignors"][0]["name"] == "roundrobin"
