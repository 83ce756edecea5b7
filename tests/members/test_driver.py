"""Members over real sockets, at this project's gateway; and a member that has no sockets but the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.members.driver.member import DrivenMember, MemberError
from coordinator_udf.members.driver.transport import BrokerTransport, NoBroker, committed_offsets
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.outputs import Request
from coordinator_udf.protocol.errors import BadRequest
from tests.gateway.in_process import Front, topics
from tests.gateway.wire import Wire
from tests.waiting import PATIENCE_S

#: It waits for sessions to end.
pytestmark = pytest.mark.slow

PROPERTIES: dict[str, dict[str, Any]] = {
    "range": {"session.timeout.ms": 8_000, "heartbeat.interval.ms": 300},
    "cooperative": {
        "session.timeout.ms": 8_000,
        "heartbeat.interval.ms": 300,
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    },
    "consumer": {"group.protocol": "consumer"},
    "consumer, computing": {
        "group.protocol": "consumer",
        "group.local.assignors": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    },
}
_SETTINGS = {
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 8_000,
    "group.consumer.min.session.timeout.ms": 8_000,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.client.assignors.enable": True,
}
EXTENDED = GatewaySettings(port=0, client_assignors=True)
_PARTITIONS = 7


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    with Front(tmp_path / "log", topics(t=_PARTITIONS), settings=_SETTINGS, gateway=EXTENDED) as opened:
        yield opened


class _Listener:
    """What a member's application was told; it counts what was assigned twice without being revoked."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.twice = 0

    def __call__(self, method: str, partitions: Sequence[TopicPartition]) -> None:
        if method == "onPartitionsAssigned":
            self.twice += len(self.owned & set(partitions))
            self.owned |= set(partitions)
        else:
            self.owned -= set(partitions)


async def _member(front: Front, protocol: str, name: str, listener: Callable[..., None] | None = None) -> DrivenMember:
    properties = {"group.id": f"g-{protocol}", **PROPERTIES[protocol]}
    transport = BrokerTransport([("127.0.0.1", front.gateway.port)], name)
    return await DrivenMember(properties, transport, listener).start(["t"])


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.05)


async def _shared_out(members: Sequence[DrivenMember]) -> None:
    def are_shared() -> bool:
        owned = [partition for member in members for partition in member.assignment]
        return len(owned) == len(set(owned)) == _PARTITIONS and all(member.assignment for member in members)

    await _until(are_shared)


@pytest.mark.parametrize("protocol", PROPERTIES)
def test_members_share_partitions_and_take_over_from_one_that_leaves_and_one_that_dies(
    front: Front, protocol: str
) -> None:
    async def scenario() -> None:
        listeners = [_Listener() for _ in range(3)]
        members = [await _member(front, protocol, f"c{i}", listener) for i, listener in enumerate(listeners)]
        await _shared_out(members)
        leaving, dying, staying = members
        await leaving.close()
        await _shared_out([dying, staying])
        await dying.abandon()
        await _shared_out([staying])
        # An application is told of partitions when it is known where they begin, a moment after the member has them.
        await _until(lambda: listeners[2].owned == set(staying.assignment))
        assert [listener.twice for listener in listeners] == [0, 0, 0]
        assert [member.errors for member in members] == [[], [], []]
        await staying.close()

    asyncio.run(scenario())


def test_a_member_ends_that_is_told_something_in_the_moment_in_which_it_is_abandoned(front: Front) -> None:
    """asyncio.wait_for of Python 3.11 doesn't pass a cancellation on where what it waits for has just come."""

    async def scenario() -> None:
        member = await _member(front, "range", "c0")
        await _until(lambda: bool(member.assignment))
        await asyncio.sleep(0.01)
        member.consumed({})
        await asyncio.sleep(0)
        ended, _ = await asyncio.wait({asyncio.ensure_future(member.abandon())}, timeout=20)
        assert ended

    asyncio.run(scenario())


def test_a_commit_is_there_for_who_asks_and_refused_after_the_end(front: Front) -> None:
    async def scenario() -> None:
        member = await _member(front, "range", "c0")
        await _shared_out([member])
        member.consumed({TopicPartition("t", 3): 41})
        await member.commit()
        transport = BrokerTransport([("127.0.0.1", front.gateway.port)], "asks")
        places = [TopicPartition("t", number) for number in range(_PARTITIONS)]
        found = await committed_offsets(transport, member.config, "broker-1", places)
        assert found == {place: 41 if place.partition == 3 else 0 for place in places}
        await member.close()
        # Who comes next goes on where it was left, and commits that again.
        after = await _member(front, "range", "c1")
        await _shared_out([after])
        await after.commit()
        found = await committed_offsets(transport, member.config, "broker-1", places)
        assert found[TopicPartition("t", 3)] == 41
        await after.close()
        await transport.close()
        with pytest.raises(MemberError, match="closed"):
            await member.commit()

    asyncio.run(scenario())


class _Unsure(BrokerTransport):
    """A transport whose coordinator can't tell offsets at first."""

    def __init__(self, port: int, codes: Sequence[int]) -> None:
        super().__init__([("127.0.0.1", port)], "unsure")
        self.codes = list(codes)

    async def send(self, request: Request) -> Mapping[str, Any]:
        if request.api == "OffsetFetch" and self.codes:
            return {"groups": [{"groupId": "g-range", "errorCode": self.codes.pop(0), "topics": []}]}
        return await super().send(request)


@pytest.mark.parametrize("codes", [[14, 16], [30]], ids=["loading, not the coordinator", "not allowed"])
def test_partitions_arent_begun_anew_while_nobody_knows_where_they_begin(front: Front, codes: list[int]) -> None:
    """Else the next commit would write 0 over what was committed."""

    async def scenario() -> None:
        first = await _member(front, "range", "c0")
        await _shared_out([first])
        places = [TopicPartition("t", number) for number in range(_PARTITIONS)]
        first.consumed(dict.fromkeys(places, 41))
        await first.close()
        transport, listener = _Unsure(front.gateway.port, codes), _Listener()
        member = await DrivenMember({"group.id": "g-range", **PROPERTIES["range"]}, transport, listener).start(["t"])
        await _until(lambda: listener.owned == set(places))
        await member.commit()
        assert transport.codes == []
        assert [error.class_name for error in member.errors] == ([] if 14 in codes else ["GroupAuthorizationException"])
        asks = BrokerTransport([("127.0.0.1", front.gateway.port)], "asks")
        assert await committed_offsets(asks, member.config, "broker-1", places) == dict.fromkeys(places, 41)
        await asks.close()
        await member.close()

    asyncio.run(scenario())


def test_calls_at_once_are_made_one_after_the_other(front: Front) -> None:
    async def scenario() -> None:
        member = await _member(front, "range", "c0")
        await _shared_out([member])
        place = TopicPartition("t", 3)
        commits = [asyncio.ensure_future(member.commit({place: offset})) for offset in (41, 42, 43)]
        await asyncio.sleep(0)
        member.consumed({place: 44})
        await asyncio.wait_for(member.close(), PATIENCE_S)
        await asyncio.gather(*commits)
        assert member.errors == []

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_listener_that_waits_for_its_own_member_is_told_that_it_cant(front: Front, protocol: str) -> None:
    async def scenario() -> None:
        told: list[str] = []

        async def listen(method: str, partitions: Sequence[TopicPartition]) -> None:
            try:
                await member.commit(dict.fromkeys(partitions, 1))
            except MemberError as error:
                told.append(f"{method}: {error}")

        transport = BrokerTransport([("127.0.0.1", front.gateway.port)], "c0")
        member = DrivenMember({"group.id": f"g-{protocol}", **PROPERTIES[protocol]}, transport, listen)
        await member.start(["t"])
        await _shared_out([member])
        await _until(lambda: bool(told))
        await asyncio.wait_for(member.close(), PATIENCE_S)
        assert "onPartitionsAssigned: IllegalStateException: a listener can't wait for its own member" in told[0]
        assert told[-1].startswith("onPartitionsRevoked")

    asyncio.run(scenario())


def test_who_waits_for_a_call_hears_that_the_machine_failed(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        member = await _member(front, "range", "c0")
        await _shared_out([member])

        def fail(*_: object) -> None:
            raise ZeroDivisionError("so it is")

        monkeypatch.setattr(member._machine, "handle", fail)
        with pytest.raises(MemberError, match="ZeroDivisionError: so it is"):
            await asyncio.wait_for(member.commit(), PATIENCE_S)
        await asyncio.wait_for(member.abandon(), PATIENCE_S)

    asyncio.run(scenario())


def test_what_is_consumed_before_it_is_known_where_partitions_begin_is_kept(front: Front) -> None:
    async def scenario() -> None:
        known = asyncio.Event()

        async def positions(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
            await known.wait()
            return dict.fromkeys(partitions, 7)

        transport = BrokerTransport([("127.0.0.1", front.gateway.port)], "c0")
        member = DrivenMember({"group.id": "g-range", **PROPERTIES["range"]}, transport, positions=positions)
        await member.start(["t"])
        await _shared_out([member])
        member.consumed({TopicPartition("t", 3): 41})
        committing = asyncio.create_task(member.commit())
        # Long enough for a loop that took the calls at once to have taken both.
        await asyncio.sleep(0.3)
        known.set()
        await committing
        places = [TopicPartition("t", number) for number in range(_PARTITIONS)]
        found = await committed_offsets(transport, member.config, "broker-1", places)
        assert found == {place: 41 if place.partition == 3 else 7 for place in places}
        await member.close()

    asyncio.run(scenario())


def test_an_application_that_throws_in_a_callback_is_told_so_and_goes_on(front: Front) -> None:
    async def scenario() -> None:
        told = 0

        def throws_once(method: str, partitions: Sequence[TopicPartition]) -> None:
            nonlocal told
            told += 1
            if told == 1:
                raise RuntimeError("not now")

        member = await _member(front, "range", "c0", throws_once)
        await _shared_out([member])
        await _until(lambda: bool(member.errors))
        assert [error.class_name for error in member.errors] == ["KafkaException"]
        await member.close()

    asyncio.run(scenario())


def test_nobody_there_and_a_property_that_cannot_be_are_said_at_once() -> None:
    async def start() -> None:
        transport = BrokerTransport([("127.0.0.1", 1)], "c0")
        await DrivenMember({"group.id": "g"}, transport).start(["t"])

    with pytest.raises(NoBroker, match=r"127\.0\.0\.1:1 can't be reached"):
        asyncio.run(start())
    with pytest.raises(BadRequest, match=r"group\.id"):
        DrivenMember({}, BrokerTransport([], "c0"))


def test_a_described_group_tells_who_computed_its_assignment(front: Front) -> None:
    async def scenario() -> None:
        member = await _member(front, "consumer, computing", "c0")
        await _shared_out([member])
        with Wire(front.gateway.port) as wire:
            asked = {"groupIds": ["g-consumer, computing"], "includeAuthorizedOperations": False}
            (group,) = wire.ask("ConsumerGroupDescribe", 1, asked)["groups"]
            (plain,) = wire.ask("ConsumerGroupDescribe", 0, asked)["groups"]
        assert group["assignorName"] == plain["assignorName"] == "cooperative-sticky"
        assert group["computedBy"] == group["members"][0]["memberId"]
        assert "computedBy" not in plain
        await member.close()

    asyncio.run(scenario())
