"""The admin clients of the three libraries: list, describe, delete groups; set, read and delete offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.fleet import Fleet, Place
from tests.gateway.in_process import Front, topics

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PLACES: set[Place] = {("t1", i) for i in range(4)}


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    with Front(tmp_path / "log.db", topics(t1=4, t2=2)) as front:
        yield front
        assert front.coordinator.rejected == 0


def test_kafka_pythons_admin(front: Front, tmp_path: Path) -> None:
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.errors import GroupIdNotFoundError, NonEmptyGroupError
    from kafka.structs import OffsetAndMetadata

    admin = KafkaAdminClient(bootstrap_servers=front.address)
    with Fleet(tmp_path, front.address) as fleet:
        members = [fleet.start("kafka-python", group="g", topics=["t1"]) for _ in range(2)]
        fleet.wait_for_assignment(members, PLACES)
        members[0].order("committed", do="commit", place=("t1", 1), offset=5)
        assert [(g["group_id"], g["group_state"]) for g in admin.list_groups()] == [("g", "Stable")]
        described = admin.describe_groups(["g", "nobody"])
        assert described["g"]["group_state"] == "Stable"
        assert len(described["g"]["members"]) == 2
        assert admin.list_group_offsets("g")["g"][TopicPartition("t1", 1)].offset == 5
        refused = admin.delete_groups(["g"])
        assert NonEmptyGroupError.__name__ in repr(refused) or "NON_EMPTY" in repr(refused), refused
        for member in members:
            member.close()
    admin.alter_group_offsets("g", {TopicPartition("t1", 0): OffsetAndMetadata(11, "", -1)})
    assert admin.list_group_offsets("g")["g"][TopicPartition("t1", 0)].offset == 11
    admin.delete_group_offsets("g", [TopicPartition("t1", 0)])
    assert TopicPartition("t1", 0) not in admin.list_group_offsets("g")["g"]
    admin.delete_groups(["g"])
    assert admin.list_groups() == []
    assert GroupIdNotFoundError.__name__ in repr(admin.delete_groups(["g"])) or "69" in repr(admin.delete_groups(["g"]))
    admin.close()


def test_confluents_admin(front: Front, tmp_path: Path) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": front.address})
    with Fleet(tmp_path, front.address) as fleet:
        members = [fleet.start("confluent", group="g", topics=["t1"]) for _ in range(2)]
        fleet.wait_for_assignment(members, PLACES)
        members[0].order("committed", do="commit", place=("t1", 1), offset=5)
        listed = admin.list_consumer_groups().result(120)
        assert [(group.group_id, group.state.name) for group in listed.valid] == [("g", "STABLE")]
        assert not listed.errors
        described = admin.describe_consumer_groups(["g"])["g"].result(120)
        places = {(p.topic, p.partition) for m in described.members for p in m.assignment.topic_partitions}
        assert (described.state.name, described.partition_assignor, places) == ("STABLE", "range", PLACES)
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups(["g"])["g"].result(120)
        for member in members:
            member.close()
    asked = ConsumerGroupTopicPartitions("g", [TopicPartition("t1", 1), TopicPartition("t1", 2)])
    found = admin.list_consumer_group_offsets([asked])["g"].result(120).topic_partitions
    assert [(p.partition, p.offset) for p in found] == [(1, 5), (2, -1001)]
    altered = ConsumerGroupTopicPartitions("g", [TopicPartition("t1", 2, 77)])
    admin.alter_consumer_group_offsets([altered])["g"].result(120)
    found = admin.list_consumer_group_offsets([asked])["g"].result(120).topic_partitions
    assert [(p.partition, p.offset) for p in found] == [(1, 5), (2, 77)]
    admin.delete_consumer_groups(["g"])["g"].result(120)
    assert admin.list_consumer_groups().result(120).valid == []
    cluster = admin.describe_cluster().result(120)
    assert [(node.host, node.port) for node in cluster.nodes] == [("127.0.0.1", front.gateway.port)]


def test_aiokafkas_admin(front: Front, tmp_path: Path) -> None:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.structs import TopicPartition

    async def look() -> tuple[list[tuple[str, ...]], list[str], int]:
        admin = AIOKafkaAdminClient(bootstrap_servers=front.address)
        await admin.start()
        try:
            listed = await admin.list_consumer_groups()
            (described,) = await admin.describe_consumer_groups(["g"])
            states = [group[2] for group in described.groups]
            offsets = await admin.list_consumer_group_offsets("g")
            return [tuple(group) for group in listed], states, offsets[TopicPartition("t1", 1)].offset
        finally:
            await admin.close()

    with Fleet(tmp_path, front.address) as fleet:
        member = fleet.start("aiokafka", group="g", topics=["t1"])
        fleet.wait_for_assignment([member], PLACES)
        member.order("committed", do="commit", place=("t1", 1), offset=5)
        listed, states, offset = asyncio.run(look())
        assert (listed, states, offset) == ([("g", "consumer")], ["Stable"], 5)
        member.close()
