"""A group's offsets from a real cluster to Muster and back, by the command a person types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.conftest import ROOT
from tests.gateway.upstream import consumers
from tests.gateway.upstream.behind import front_of
from tests.members.kafka_broker import KafkaBroker
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


def migrate(upstream: str, gateway: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coordinator_udf.commands.offsets", "migrate", "--group", "g"]
    command += ["--upstream", upstream, "--gateway", gateway, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)


def committed(address: str) -> dict[int, tuple[int, str | None]]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "log_level": 0})
    places = consumer.committed([TopicPartition("t1", number) for number in range(3)], timeout=PATIENCE_S)
    consumer.close()
    return {place.partition: (place.offset, place.metadata) for place in places if place.offset >= 0}


def commit(address: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "log_level": 0})
    places = [TopicPartition("t1", number, offset, "by hand") for number, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def test_offsets_come_over_and_go_back(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path, {"t1": 3}, {}) as broker, front_of(tmp_path / "log.db", broker.address) as front:
        commit(broker.address, {0: 5, 2: 7})
        dry = migrate(broker.address, front.address)
        assert (dry.returncode, dry.stdout) == (0, "t1-0: 5 (there: nothing)\nt1-2: 7 (there: nothing)\n"), dry.stderr
        assert "2 offsets of g would be committed" in dry.stderr
        assert committed(front.address) == {}
        assert migrate(broker.address, front.address, "--execute").returncode == 0
        assert committed(front.address) == committed(broker.address) == {0: (5, "by hand"), 2: (7, "by hand")}
        assert "0 offsets of g" in migrate(broker.address, front.address).stderr

        commit(front.address, {0: 6, 1: 1})
        back = ("--to", "upstream", "--execute")
        refused = migrate(broker.address, front.address, *back)
        assert refused.returncode == 1
        assert "add --overwrite" in refused.stderr
        assert migrate(broker.address, front.address, *back, "--overwrite").returncode == 0
        assert committed(broker.address) == {0: (6, "by hand"), 1: (1, "by hand"), 2: (7, "by hand")}

        member = Consumer({"bootstrap.servers": broker.address, "group.id": "g", "log_level": 0})
        member.subscribe(["t1"])
        consumers.wait_for_assignment(member)
        refused = migrate(broker.address, front.address)
        assert refused.returncode == 1
        assert "stop its consumers first" in refused.stderr
        member.close()
        nobody = migrate("127.0.0.1:1", front.address)
        assert nobody.returncode == 1
        assert "can't be asked" in nobody.stderr
