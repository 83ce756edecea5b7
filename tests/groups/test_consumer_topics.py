"""Consumer groups whose topics change, or whose members change what they want while topics do."""

from __future__ import annotations

from base64 import b64decode

import pytest

from coordinator_udf.protocol.consumer_protocol import decode_assignment
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.file import topic_id
from tests.groups.bodies import subscription
from tests.groups.conftest import Worlds
from tests.groups.consumer_member import SETTINGS, Consumer, settle
from tests.groups.harness import TOPICS, Asked, World


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds(SETTINGS)


def types(asked: Asked) -> list[str]:
    """The types of the records that a request wrote."""
    return [record.key["type"].removeprefix("ConsumerGroup") for record in asked.records]


def test_a_topic_that_nobody_wants_is_none_of_the_groups_business(world: World) -> None:
    member = Consumer(world, "a", None, regex="t0")
    member.join()
    settle(member)
    world.set_topics(TOPICS[0], Topic(name="t1", partitions=3, id=topic_id("t1")))
    world.advance(10_001)
    asked = member.beat(subscribedTopicRegex="t.*")
    # The new epoch comes with the topics that the expression matches, and not with those that the old one gave up.
    assert types(asked).count("Metadata") == 1
    settle(member)
    assert (member.epoch, member.owned) == (3, {"t0": [0, 1, 2, 3], "t1": [0, 1, 2]})


def test_a_wanted_topic_that_grew_is_seen_with_the_next_heartbeat(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    settle(member)
    world.set_topics(Topic(name="t0", partitions=5, id=topic_id("t0")), TOPICS[1])
    asked = member.beat()
    assert "Metadata" in types(asked)
    assert member.owned == {"t0": [0, 1, 2, 3, 4]}


def test_a_change_of_what_nothing_was_assigned_for_writes_no_assignment(world: World) -> None:
    member = Consumer(world, "a", ["nowhere"])
    member.join()
    asked = member.join(subscribedTopicRegex="x.*")
    assert types(asked) == ["MemberMetadata", "RegularExpression"]


def test_a_regular_expression_that_goes_with_its_member_leaves_the_others_unlike(worlds: Worlds) -> None:
    world = worlds({**SETTINGS, "group.consumer.assignors": ["uniform"]})
    stays, goes, comes = (
        Consumer(world, "a", ["t0"]),
        Consumer(world, "b", None, regex="t.*"),
        Consumer(world, "c", None, regex="t.*"),
    )
    stays.join()
    goes.join()
    settle(stays, goes)
    goes.leave()
    # Kafka looked whether all want the same while the expression was still there. So it knows that they don't, and the
    # one that comes, whose expression isn't resolved yet, takes nothing from the other.
    targets = [record.value for record in comes.join().records if "TargetAssignmentMember" in record.key["type"]]
    assert sorted(len(tp["partitions"]) for value in targets for tp in (value or {})["topicPartitions"]) == [4]


def test_partitions_of_a_classic_member_stand_as_java_walks_them(worlds: Worlds) -> None:
    world = worlds(SETTINGS, [Topic(name="t0", partitions=38, id=topic_id("t0"))])
    consumer = Consumer(world, "z")
    consumer.join()
    protocols = {"range": subscription("t0", version=1)}
    classic = world.join(world.join(protocols=protocols).body["memberId"], protocols=protocols).member
    settle(consumer)
    classic = world.join(classic, protocols=protocols).member
    assigned = decode_assignment(b64decode(world.sync(classic).body["assignment"])).partitions["t0"]
    # Every second one, in a table of 32.
    assert assigned == [0, 32, 2, 34, 4, 36, *range(6, 32, 2)]
