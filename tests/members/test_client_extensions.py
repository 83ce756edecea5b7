"""Members that use the extensions of the classic protocol, over real sockets at this project's gateway."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.members.client_assignors.spec import Assignment, ClientAssignor, ClusterTopics, MemberSubscription
from coordinator_udf.members.driver.member import DrivenMember
from coordinator_udf.members.driver.transport import BrokerTransport
from coordinator_udf.members.inputs import TopicPartition
from tests.gateway.in_process import Front, topics
from tests.gateway.test_topics_and_ends import create, new_topic
from tests.gateway.wire import Wire
from tests.waiting import PATIENCE_S

#: It takes real time.
pytestmark = pytest.mark.slow

SETTINGS = {"group.min.session.timeout.ms": 1_000, "group.classic.client.extensions.enable": True}
PROPERTIES = {
    "group.id": "g",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 300,
    "metadata.max.age.ms": 500,
    "retry.backoff.ms": 50,
    "classic.client.extensions.enable": True,
}
KAFKAS = "org.apache.kafka.clients.consumer."
BEFORE, AFTER = 6, 9


class Picky(ClientAssignor):
    """Refuses to assign."""

    @property
    def name(self) -> str:
        return "picky"

    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Assignment]:
        raise ValueError(f"{len(subscriptions)} members can't agree")


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    gateway = GatewaySettings(port=0, classic_extensions=True)
    with Front(tmp_path / "log", topics(other=1), settings=SETTINGS, gateway=gateway) as opened:
        with Wire(opened.gateway.port) as wire:
            (made,) = create(wire, new_topic("t", BEFORE))
            assert made["errorCode"] == 0
        yield opened


async def start(front: Front, name: str, **more: Any) -> DrivenMember:
    transport = BrokerTransport([("127.0.0.1", front.gateway.port)], name)
    return await DrivenMember({**PROPERTIES, **more}, transport).start(["t"])


async def shared_out(members: Sequence[DrivenMember], partitions: int) -> None:
    wanted = [TopicPartition("t", number) for number in range(partitions)]

    def are_shared() -> bool:
        # Who comes first may have all of them for a while.
        owned = sorted(partition for member in members for partition in member.assignment)
        return owned == wanted and all(member.assignment for member in members)

    async with asyncio.timeout(PATIENCE_S):
        while not are_shared():
            await asyncio.sleep(0.02)


def grow(front: Front) -> None:
    grown = {"topics": [{"name": "t", "count": AFTER, "assignments": None}], "timeoutMs": 1_000, "validateOnly": False}
    with Wire(front.gateway.port) as wire:
        assert [result["errorCode"] for result in wire.ask("CreatePartitions", 3, grown)["results"]] == [0]


def answered(front: Front) -> Counter[str]:
    return Counter(api for table in list(front.coordinator.responses) for api in table.column("api").to_pylist())


@pytest.mark.parametrize("assignor", ["Range", "Sticky", "CooperativeSticky"])
def test_a_topic_grows_and_nobody_joins(front: Front, assignor: str) -> None:
    async def scenario() -> None:
        strategy = {"partition.assignment.strategy": f"{KAFKAS}{assignor}Assignor"}
        members = [await start(front, f"c{number}", **strategy) for number in range(3)]
        await shared_out(members, BEFORE)
        before = answered(front)
        grow(front)
        await shared_out(members, AFTER)
        assert answered(front)["JoinGroup"] == before["JoinGroup"]
        assert answered(front)["SyncGroup"] >= before["SyncGroup"] + 3
        assert [member.errors for member in members] == [[], [], []]
        for member in members:
            await member.close()

    asyncio.run(scenario())


def test_an_assignor_that_fails_fails_the_whole_group_alike(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    # Applications give assignors of their own to the member as objects.
    monkeypatch.setattr("coordinator_udf.members.classic.member.make_assignors", lambda _: [Picky()])

    async def scenario() -> None:
        members = [await start(front, f"c{number}") for number in range(2)]
        async with asyncio.timeout(PATIENCE_S):
            while not all(any("2 members" in (error.message or "") for error in m.errors) for m in members):
                await asyncio.sleep(0.02)
        told = [next(error for error in m.errors if "2 members" in (error.message or "")) for m in members]
        # The leader has its assignor's own error; the other one is told.
        assert sorted((error.class_name, error.message) for error in told) == [
            (
                "UnknownServerException",
                "the group's leader could compute no assignment: ValueError: 2 members can't agree",
            ),
            ("ValueError", "2 members can't agree"),
        ]
        for member in members:
            await member.abandon()

    asyncio.run(scenario())
