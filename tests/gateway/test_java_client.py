"""Kafka's own Java consumer and kafka-consumer-groups, where Maven is there to fetch them."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.gateway.clients.built import java_command
from tests.gateway.in_process import Front, topics
from tests.gateway.test_topics_and_ends import commit
from tests.gateway.wire import Wire
from tests.waiting import PATIENCE_S, wait

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def java() -> list[str]:
    """The command that runs a class of Kafka's tools; the test is skipped where Maven can't bring them."""
    return java_command()


class Tools:
    """kafka-consumer-groups, or another tool, against one address."""

    def __init__(self, java: Sequence[str], address: str, tool: str = GROUPS) -> None:
        self._command = [*java, tool, "--bootstrap-server", address]

    def say(self, *arguments: str) -> str:
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, timeout=300, check=False)
        assert " ERROR " not in done.stderr, done.stderr
        return done.stdout

    def members(self, group: str) -> dict[str, str]:
        """Client id -> number of its partitions."""
        said = self.say("--describe", "--group", group, "--members", "--verbose")
        return {m[1]: m[2] for m in re.finditer(rf"^{group} .*/127\.0\.0\.1 +(\S+) +(\d+) ", said, re.MULTILINE)}


@contextmanager
def consumer(java: Sequence[str], address: str, name: str, protocol: str, log: Path) -> Iterator[None]:
    command = [*java, CONSUMER, "--bootstrap-server", address, "--topic", "t1", "--group", "java"]
    for setting in (f"client.id={name}", f"group.protocol={protocol}"):
        command += ["--command-property", setting]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafkas_own_client_and_tools(java: list[str], tmp_path: Path, protocol: str) -> None:
    logs = [tmp_path / "j1.log", tmp_path / "j2.log"]
    fast = {"group.consumer.min.heartbeat.interval.ms": 500, "group.consumer.heartbeat.interval.ms": 500}
    with Front(tmp_path / "log.db", topics(t1=4, t2=2), settings=fast) as front:
        tools = Tools(java, front.address)
        with consumer(java, front.address, "j1", protocol, logs[0]):
            with consumer(java, front.address, "j2", protocol, logs[1]):
                both = {"j1": "2", "j2": "2"}
                wait(lambda: tools.members("java") == both, "both have two partitions", logs[0].read_text)
                assert re.search(r"^java +Stable", tools.say("--list", "--state"), re.MULTILINE)
            # Killed amidst a rebalance the client would call its own close an error.
            wait(lambda: tools.members("java") == {"j1": "4"}, "one has them all", logs[0].read_text)
            offsets = tools.say("--describe", "--group", "java", "--offsets")
            assert len(re.findall(r"^java +t1 ", offsets, re.MULTILINE)) == 4
            time.sleep(2)
        reset = ("--reset-offsets", "--group", "java", "--topic", "t1:1", "--to-offset", "0", "--execute")
        assert re.search(r"^java +t1 +1 +0", tools.say(*reset), re.MULTILINE)
        assert "was successful" in tools.say("--delete", "--group", "java")
        assert front.coordinator.rejected == 0
    for log in logs:
        assert not re.search(r" (ERROR|WARN) ", log.read_text()), log.read_text()


def test_offsets_are_reset_by_so_many_records_and_no_lag_is_negative(java: list[str], tmp_path: Path) -> None:
    with Front(tmp_path / "log.db", topics(t1=2)) as front:
        with Wire(front.gateway.port) as wire:
            assert commit(wire, "t1", 0, 200, "ahead") == 0
            assert commit(wire, "t1", 0, 150, "behind") == 0
        tools = Tools(java, front.address)
        described = tools.say("--describe", "--group", "behind", "--offsets")
        assert re.search(r"^behind +t1 +0 +150 +200 +50 ", described, re.MULTILINE), described
        tools.say("--reset-offsets", "--group", "ahead", "--topic", "t1:0", "--shift-by", "-20", "--execute")
        described = tools.say("--describe", "--group", "ahead", "--offsets")
        assert re.search(r"^ahead +t1 +0 +180 +200 +20 ", described, re.MULTILINE), described


def test_topics_are_created_and_described(java: list[str], tmp_path: Path) -> None:
    for made in (False, True):
        with Front(tmp_path / "log.db", topics(t1=2)) as front:
            tools = Tools(java, front.address, TOPICS)
            if not made:
                assert "Created topic made" in tools.say("--create", "--topic", "made", "--partitions", "3")
            described = tools.say("--describe")
            counts = dict(re.findall(r"^Topic: (\S+)\s.*PartitionCount: (\d+)", described, re.MULTILINE))
            assert counts == {"t1": "2", "made": "3"}, described
