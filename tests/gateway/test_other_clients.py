"""Members of client libraries in Go, JavaScript, C and Java: they share a group, rest without work, and hand over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from coordinator_udf.gateway.settings import GatewaySettings
from tests.gateway.fleet import Fleet, Member, Place
from tests.gateway.in_process import Front, topics
from tests.nightly import only_at_night
from tests.waiting import wait

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

KNOWN = topics(t1=4, t2=2)
PLACES: set[Place] = {("t1", i) for i in range(4)} | {("t2", i) for i in range(2)}

#: What a member that nothing happens to may take of a core. One that spins takes all that there is; kafkajs at rest
#: took 0.052 of a slow one.
IDLE_SHARE = 0.1
IDLE_S = 6

#: Kafka's consumer heartbeats as often as this lets it. What Kafka hasn't got is switched on: nobody may notice.
FAST = {
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.client.assignors.enable": True,
    "group.classic.client.extensions.enable": True,
}
EXTENDED = GatewaySettings(port=0, client_assignors=True, classic_extensions=True)


def assert_idle(members: Sequence[Member]) -> None:
    """Sooner or later all are quiet for a while, as a JVM that has compiled what it ran before; who spins never is."""
    taken: dict[str, float] = {}

    def are_quiet() -> bool:
        taken.update(shares(members, IDLE_S))
        return max(taken.values()) < IDLE_SHARE

    def story() -> str:
        return f"nothing happens, and of a core they take {taken}\n" + "\n".join(member.tail() for member in members)

    wait(are_quiet, f"all are quiet for {IDLE_S} s", story)


def shares(members: Sequence[Member], of_s: float) -> dict[str, float]:
    """What each member takes of a core for a while."""
    before = [(member.cpu_s(), time.monotonic()) for member in members]
    time.sleep(of_s)
    return {
        member.name: (member.cpu_s() - cpu_s) / (time.monotonic() - at)
        for member, (cpu_s, at) in zip(members, before, strict=True)
    }


@pytest.mark.parametrize(
    ("clients", "protocol"),
    [
        (("franz-go", "sarama", "kafka-go"), "classic"),
        (("kafkajs", "kafkajs"), "classic"),
        pytest.param(
            *(("confluent", "java", "java-2.8"), "classic"),
            marks=only_at_night("test_clients.py and test_java_client.py have them in groups"),
        ),
        (("confluent", "java", "platformatic"), "consumer"),
    ],
    ids=["go", "node", "librdkafka-and-java", "kip-848"],
)
def test_members_share_a_group_rest_and_hand_over(tmp_path: Path, clients: tuple[str, ...], protocol: str) -> None:
    with (
        Front(tmp_path / "log.db", KNOWN, settings=FAST, gateway=EXTENDED) as front,
        Fleet(tmp_path, front.address, session_ms=10_000, heartbeat_ms=1_000) as fleet,
    ):
        more = {"protocol": "consumer"} if protocol == "consumer" else {}
        members = [fleet.start(client, group="g", topics=["t1", "t2"], **more) for client in clients]
        fleet.wait_for_assignment(members, PLACES)
        members[0].order("committed", do="commit", place=min(members[0].assignment), offset=200)
        assert_idle(members)
        *gone, last = members
        for member in gone:
            member.close()
        fleet.wait_for_assignment([last], PLACES)
        # The last stands before the end of a partition now, or at it.
        assert_idle([last])
        last.close()
        assert front.coordinator.rejected == 0
