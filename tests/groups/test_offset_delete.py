"""OffsetDelete, and offsets of topics that are deleted."""

from __future__ import annotations

from coordinator_udf.protocol.errors import Errors
from tests.groups.conftest import Worlds
from tests.groups.harness import World

T = ("t0", 0)


def test_a_group_that_is_not_there_has_no_offsets_to_delete(world: World) -> None:
    assert world.delete_offsets(T).error == "GROUP_ID_NOT_FOUND"


def test_the_empty_group_id_is_invalid_for_deletions(world: World) -> None:
    assert world.delete_offsets(T, group="").error == "INVALID_GROUP_ID"


def test_a_simple_groups_offset_is_deleted_with_a_tombstone(world: World) -> None:
    world.commit(None, {T: 1, ("t0", 1): 2})
    asked = world.delete_offsets(T)
    assert asked.errors == {T: "NONE"}
    (record,) = asked.records
    assert record.key == {"type": "OffsetCommit", "group": "g", "topic": "t0", "partition": 0}
    assert record.value is None
    assert world.fetched() == {("t0", 1): 2}


def test_an_offset_that_is_not_there_is_deleted_without_a_record(world: World) -> None:
    world.commit(None, {T: 1})
    asked = world.delete_offsets(("t0", 3), ("nowhere", 0))
    assert set(asked.errors.values()) == {"NONE"}
    assert asked.records == []


def test_a_partition_that_is_named_twice_gets_two_tombstones(world: World) -> None:
    world.commit(None, {T: 1})
    assert len(world.delete_offsets(T, T).records) == 2


def test_of_deletions_too_what_the_broker_refuses_stands_first(worlds: Worlds) -> None:
    world = worlds({"offsets.topic.partition.check": True})
    world.commit(None, {T: 5, ("t1", 0): 5})
    body = world.delete_offsets(T, ("t0", 99), ("t1", 0), ("nowhere", 0)).body
    assert [(topic["name"], [tuple(place.values()) for place in topic["partitions"]]) for topic in body["topics"]] == [
        ("t0", [(99, Errors.UNKNOWN_TOPIC_OR_PARTITION), (0, Errors.NONE)]),
        ("nowhere", [(0, Errors.UNKNOWN_TOPIC_OR_PARTITION)]),
        ("t1", [(0, Errors.NONE)]),
    ]


def test_of_a_topic_to_which_a_member_is_subscribed_nothing_is_deleted(world: World) -> None:
    (member,) = world.stable(1)
    world.commit(member, {T: 1, ("t1", 0): 2})
    asked = world.delete_offsets(T, ("t1", 0))
    assert asked.errors == {T: "GROUP_SUBSCRIBED_TO_TOPIC", ("t1", 0): "NONE"}
    assert world.fetched() == {T: 1}


def test_when_a_subscription_can_not_be_read_all_topics_count_as_subscribed(world: World) -> None:
    (member,) = world.stable(1, protocols={"range": b"\xff\xff"})
    world.commit(member, {T: 1})
    assert world.delete_offsets(T).errors == {T: "GROUP_SUBSCRIBED_TO_TOPIC"}


def test_a_group_of_another_type_with_members_is_not_empty(world: World) -> None:
    (member,) = world.joined(1, type_="connect", protocols=("p",))
    world.sync(member, {}, type_="connect", protocol="p")
    world.commit(member, {T: 1})
    assert world.delete_offsets(T).error == "NON_EMPTY_GROUP"


def test_when_the_members_are_gone_their_topics_may_be_deleted(world: World) -> None:
    (member,) = world.stable(1)
    world.commit(member, {T: 1})
    world.leave(member)
    assert world.delete_offsets(T).errors == {T: "NONE"}


def test_a_pending_offset_of_a_transaction_is_deleted_too(world: World) -> None:
    world.txn_commit({T: 1})
    asked = world.delete_offsets(T)
    assert len(asked.records) == 1
    world.end_txn(committed=True)
    assert world.fetched() == {}


def test_when_a_topic_is_deleted_its_offsets_are_too(world: World) -> None:
    world.commit(None, {T: 1, ("t1", 0): 2})
    from tests.groups.harness import TOPICS

    world.set_topics(TOPICS[1])
    assert world.fetched() == {("t1", 0): 2}
    assert world.coordinator_records[-1].value is None
    assert world.coordinator_records[-1].cause is None
