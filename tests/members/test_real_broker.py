"""Our members in one group with those of other libraries, on a real Kafka 4.3.1 broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.fleet import Fleet, Place
from tests.members.kafka_broker import KafkaBroker
from tests.nightly import some_or_many
from tests.waiting import wait

PLACES: set[Place] = {("t1", number) for number in range(8)}
_SETTINGS = {
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 500,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.session.timeout.ms": 6_000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.migration.policy": "bidirectional",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("broker"), {"t1": 8}, _SETTINGS) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("strategy", some_or_many(["cooperative-sticky"], ["range", "cooperative-sticky"]))
def test_ours_and_others_share_a_classic_group(broker: KafkaBroker, tmp_path: Path, strategy: str) -> None:
    others = ["java", "kafka-python", "confluent"] if strategy == "range" else ["confluent", "kafka-python"]
    with Fleet(tmp_path, broker.address) as fleet:
        how: dict[str, Any] = {"group": f"mixed-{strategy}", "topics": ("t1",), "strategy": strategy}
        ours = [fleet.start("muster", **how) for _ in range(2)]
        fleet.wait_for_assignment(ours, PLACES)
        strangers = [fleet.start(client, **how) for client in others]
        fleet.wait_for_assignment([*ours, *strangers], PLACES)
        # It may have what it is to keep from the generation before, and hear of the one that all are in a moment later.
        wait(lambda: ours[0].commits(min(ours[0].assignment), 3), "its commit is taken", ours[0].tail)
        strangers[0].kill()
        fleet.wait_for_assignment([*ours, *strangers[1:]], PLACES)
        ours[0].kill()
        fleet.wait_for_assignment([ours[1], *strangers[1:]], PLACES)
        strangers[-1].close()
        fleet.wait_for_assignment([ours[1], *strangers[1:-1]], PLACES)
        ours[1].close()


@pytest.mark.slow
def test_ours_and_others_share_a_consumer_group(broker: KafkaBroker, tmp_path: Path) -> None:
    with Fleet(tmp_path, broker.address) as fleet:
        how: dict[str, Any] = {
            "group": "mixed-consumer",
            "topics": ("t1",),
            "protocol": "consumer",
            "strategy": "uniform",
        }
        ours = [fleet.start("muster", **how) for _ in range(2)]
        fleet.wait_for_assignment(ours, PLACES)
        strangers = [fleet.start(client, **how) for client in ("java", "confluent")]
        fleet.wait_for_assignment([*ours, *strangers], PLACES)
        ours[0].kill()
        fleet.wait_for_assignment([ours[1], *strangers], PLACES)
        strangers[0].kill()
        fleet.wait_for_assignment([ours[1], strangers[1]], PLACES)
        wait(lambda: ours[1].commits(min(ours[1].assignment), 3), "its commit is taken", ours[1].tail)
        ours[1].close()
        fleet.wait_for_assignment([strangers[1]], PLACES)


@pytest.mark.slow
def test_a_group_of_ours_moves_to_the_consumer_protocol_and_back(broker: KafkaBroker, tmp_path: Path) -> None:
    with Fleet(tmp_path, broker.address) as fleet:
        how: dict[str, Any] = {"group": "migrates", "topics": ("t1",), "strategy": "range"}
        classic = [fleet.start("muster", **how) for _ in range(2)]
        fleet.wait_for_assignment(classic, PLACES)
        consumer = [fleet.start("muster", **how, protocol="consumer")]
        fleet.wait_for_assignment([*classic, *consumer], PLACES)
        classic[0].close()
        consumer.append(fleet.start("java", **how, protocol="consumer"))
        fleet.wait_for_assignment([classic[1], *consumer], PLACES)
        classic[1].close()
        fleet.wait_for_assignment(consumer, PLACES)
        back = [fleet.start("muster", **how)]
        fleet.wait_for_assignment([*consumer, *back], PLACES)
        for member in consumer:
            member.close()
        fleet.wait_for_assignment(back, PLACES)
        back[0].close()


@pytest.mark.slow
def test_a_group_of_ours_changes_its_strategy_in_two_rolling_bounces(broker: KafkaBroker, tmp_path: Path) -> None:
    with Fleet(tmp_path, broker.address) as fleet:
        how: dict[str, Any] = {"group": "rolling", "topics": ("t1",)}
        members = [fleet.start("muster", **how, strategy="range") for _ in range(3)]
        fleet.wait_for_assignment(members, PLACES)
        for strategy in ("cooperative-sticky,range", "cooperative-sticky"):
            for place in range(len(members)):
                members[place].close()
                members[place] = fleet.start("muster", **how, strategy=strategy)
                fleet.wait_for_assignment(members, PLACES)
        for member in members:
            member.close()
