"""Kills, with real clients through TLS and SASL to two gateways before a real broker, and what came of it.

``scripts/nemesis --seed 1 --minutes 3``. While a producer writes and groups read and commit, what the seed chooses is
killed with SIGKILL and started again: a member, a gateway, the driver, an executor's worker (with ``--executors`` an
executor), the broker. In the end all must hold that the histories of clients and the coordinator's tables can show:

- no acknowledged commit is lost;
- no partition has two owners in one generation;
- every record whose writing was acknowledged was handed to a member of each group.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from coordinator_udf import stopping
from coordinator_udf.background import BackgroundThread
from tests.conftest import ROOT
from tests.gateway import history
from tests.gateway.clients.built import java_command
from tests.gateway.security.locked import PASSWORDS, Locked, java_login
from tests.gateway.security.locked_broker import UPSTREAM, locked_broker, write_kafka_config
from tests.members.kafka_broker import KafkaBroker
from tests.spark.kafka_fleet import KafkaFleet, make_topics

TOPIC, PARTITIONS = "orders", 6
USER = "alice"
SESSION_MS = 45_000
#: The groups: each member's library, and the group's protocol. Java's wants Maven to be at hand.
GROUPS = {
    "classic": ("classic", ("confluent", "kafka-python", "aiokafka", "java")),
    "new": ("consumer", ("confluent", "confluent", "java")),
}
#: The pause before the next kill, and of what was killed before it is started again, in seconds.
PAUSE_S, AWAY_S = (6.0, 14.0), (0.0, 6.0)
#: How long groups may take to read what is left when all is quiet, in seconds.
QUIET_S = 240.0

#: Executors are processes of their own with this master (--executors).
_CLUSTER = "local-cluster[2,1,1024]"
_EXECUTOR = "CoarseGrainedExecutorBackend"

Record = tuple[int, int]


class Reader:
    """A member in a process of its own (reader.py or Reader.java below tests/gateway), started again under its name."""

    def __init__(self, config: dict[str, Any], log: Path) -> None:
        self._config = config
        self._log = log
        self.read: set[Record] = set()
        self.committed: list[history.Commit] = []
        self.refused = 0
        self.start()

    def start(self) -> None:
        command = java_reader(self._config) if self._config["client"] == "java" else python_reader(self._config)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(120)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                told = json.loads(line)
            except json.JSONDecodeError:
                continue  # it was killed while it wrote the line
            if told["event"] == "read":
                self.read |= {(partition, offset) for partition, offset in told["records"]}
            elif told["event"] == "committed":
                group = self._config["group"]
                self.committed += [(group, TOPIC, partition, offset) for partition, offset in told["offsets"]]
            else:
                self.refused += 1


def python_reader(config: dict[str, Any]) -> list[str]:
    """What runs a member of one of Python's libraries."""
    return [sys.executable, str(Path(history.__file__).with_name("reader.py")), json.dumps(config)]


def java_reader(config: dict[str, Any]) -> list[str]:
    """What runs a member of Kafka's Java client."""
    settings = {
        "topic": config["topic"],
        "bootstrap.servers": config["address"],
        "group.id": config["group"],
        "group.protocol": config["protocol"],
        **java_login(config["ca"], config["user"]),
    }
    if config["protocol"] == "classic":
        settings |= {"session.timeout.ms": str(config["session_ms"]), "heartbeat.interval.ms": "3000"}
        # The one that aiokafka has by default.
        settings["partition.assignment.strategy"] = "org.apache.kafka.clients.consumer.RoundRobinAssignor"
    return [*java_command(), "Reader", *(word for setting in settings.items() for word in setting)]


class Writer:
    """Writes records through the gateways, and knows which are acknowledged."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = Producer({**settings, "enable.idempotence": True, "message.timeout.ms": 120_000})
        self.acknowledged: set[Record] = set()
        self._thread = BackgroundThread(self._run, "writer")
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()
        self._producer.flush(150)

    def _run(self, stop: threading.Event) -> None:
        number = 0
        while not stop.wait(0.05):
            for _ in range(5):
                number += 1
                self._producer.produce(TOPIC, f"order {number}".encode(), on_delivery=self._note)
            self._producer.poll(0)

    def _note(self, error: KafkaError | None, record: Message) -> None:
        if error is None:
            self.acknowledged.add((record.partition() or 0, record.offset() or 0))


class Nemesis:
    """All processes, and what is done to them."""

    def __init__(self, fleet: KafkaFleet, broker: KafkaBroker, readers: dict[str, list[Reader]], seed: int) -> None:
        self._fleet = fleet
        self._broker = broker
        self._readers = readers
        self._random = random.Random(seed)
        self.done: list[str] = []
        self._victims: dict[str, Callable[[], None]] = {
            "member": self._member,
            "gateway": self._gateway,
            "driver": self._driver,
            "executor": self._executor,
            "broker": self._kill_broker,
        }

    def run(self, until: float) -> None:
        """Kills one after the other, all kinds alike, until a moment of the monotonic clock."""
        while time.monotonic() < until:
            kinds = self._random.sample(sorted(self._victims), len(self._victims))
            for kind in kinds:
                if time.monotonic() >= until:
                    break
                self._wait(self._random.uniform(*PAUSE_S))
                print(f"{time.strftime('%H:%M:%S')} kill -9 of {kind}", flush=True)
                self.done.append(kind)
                self._victims[kind]()

    def keep_up(self) -> None:
        """Starts the driver and members again that ended by themselves: who runs them has somebody who does."""
        if not self._fleet.job.is_running:
            print(f"{time.strftime('%H:%M:%S')} the driver is started again", flush=True)
            self._fleet.job.start()
        for reader in (reader for readers in self._readers.values() for reader in readers):
            if reader.process.poll() is not None:
                print(f"{time.strftime('%H:%M:%S')} a member is started again", flush=True)
                reader.start()

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.2)
            self.keep_up()

    def _away(self) -> None:
        time.sleep(self._random.uniform(*AWAY_S))

    def _member(self) -> None:
        reader = self._random.choice([reader for readers in self._readers.values() for reader in readers])
        reader.kill()
        self._away()
        reader.start()

    def _gateway(self) -> None:
        gateway = self._random.choice(self._fleet.gateways)
        gateway.kill()
        self._away()
        gateway.start()
        gateway.wait_until_ready()

    def _driver(self) -> None:
        self._fleet.job.kill()
        self._away()
        self._fleet.job.start()

    def _executor(self) -> None:
        titles = {pid: title(pid) for pid in below(self._fleet.job.pid)}
        found = [pid for pid, name in titles.items() if _EXECUTOR in name]
        found = found or [pid for pid, name in titles.items() if "pyspark/daemon" in name or "pyspark.daemon" in name]
        if found:
            os.kill(self._random.choice(found), signal.SIGKILL)

    def _kill_broker(self) -> None:
        self._broker.kill()
        self._away()
        self._broker.start()


def below(root: int) -> list[int]:
    """The processes that a process started, and those that these did."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {root})


def title(pid: int) -> str:
    """What a process is called by; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@contextmanager
def everything(
    directory: Path, seed: int, *, executors: bool
) -> Iterator[tuple[Nemesis, KafkaFleet, Writer, dict[str, list[Reader]]]]:
    """Starts all processes, and ends them."""
    locked = Locked(directory)
    config = ["--kafka-config", str(write_kafka_config(locked))]
    locked.security("SASL_SSL", UPSTREAM)
    spark_conf = directory / "spark.conf"
    shipped = (ROOT / "conf" / "spark.conf").read_text()
    # A worker that is killed costs its task an attempt; a local master gives one where nothing is said.
    own = f"spark.executorEnv.PYTHONPATH {ROOT}\nspark.task.maxFailures 10\nspark.executor.memory 700m\n"
    spark_conf.write_text(
        shipped.replace("local[2]", _CLUSTER) + own if executors else shipped.replace("local[2]", "local[2,4]")
    )
    (directory / "broker").mkdir()
    with ExitStack() as stack:
        broker = stack.enter_context(locked_broker(directory / "broker", locked, {TOPIC: PARTITIONS}))
        cluster = f"localhost:{broker.port_of_more}"
        log = f"kafka://{cluster}/requests"
        make_topics(log, *config)
        job_options = [*config, "--spark-conf", str(spark_conf)]
        options = [*config, "--security", str(locked.file)]
        fleet = KafkaFleet(directory, broker, *options, log=log, job_options=job_options, upstream=cluster)
        stack.callback(fleet.kill)
        fleet.start()
        client = {
            "bootstrap.servers": fleet.bootstrap,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(locked.ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORDS[USER],
            "log_level": 0,
        }
        writer = Writer(client)
        readers: dict[str, list[Reader]] = {}
        for group, (protocol, libraries) in GROUPS.items():
            readers[group] = []
            for number, library in enumerate(library for library in libraries if is_at_hand(library)):
                settings = {"client": library, "address": fleet.bootstrap, "group": group, "protocol": protocol}
                settings |= {"topic": TOPIC, "ca": str(locked.ca), "user": USER, "password": PASSWORDS[USER]}
                reader = Reader(settings | {"session_ms": SESSION_MS}, directory / f"{group}-{number}.log")
                stack.callback(reader.kill)
                readers[group].append(reader)
        yield Nemesis(fleet, broker, readers, seed), fleet, writer, readers


def is_at_hand(library: str) -> bool:
    """Whether members of a library can be run here."""
    missing = [tool for tool in ("java", "javac", "mvn") if library == "java" and shutil.which(tool) is None]
    if missing:
        print(f"no member of the Java client: {', '.join(missing)} is missing", flush=True)
    return not missing


def unread(writer: Writer, readers: dict[str, list[Reader]]) -> dict[str, int]:
    """How many acknowledged records no member of a group was handed, by group."""
    read = {group: set().union(*(reader.read for reader in members)) for group, members in readers.items()}
    return {group: len(writer.acknowledged - found) for group, found in read.items()}


def run(directory: Path, seed: int, minutes: float, *, executors: bool = False) -> None:
    """Runs and checks.

    Args:
        executors: whether executors are processes of their own.

    Raises:
        AssertionError: something that must hold doesn't.
    """
    with everything(directory, seed, executors=executors) as (nemesis, fleet, writer, readers):
        nemesis.run(time.monotonic() + minutes * 60)
        writer.stop()
        end = time.monotonic() + QUIET_S
        while any(unread(writer, readers).values()) and time.monotonic() < end:
            nemesis.keep_up()
            time.sleep(0.5)
        left = unread(writer, readers)
        story = fleet.story()
    assert writer.acknowledged
    assert not any(left.values()), f"of {len(writer.acknowledged)} records are unread: {left}\n{story}"
    members = [reader for group in readers.values() for reader in group]
    acknowledged = [commit for reader in members for commit in reader.committed]
    assert acknowledged
    _, owners = history.checked_records(fleet.tables, acknowledged)
    refused = sum(reader.refused for reader in members)
    print(f"seed {seed}: {len(nemesis.done)} kills: {', '.join(nemesis.done)}")
    print(f"each group has read all {len(writer.acknowledged)} records that were acknowledged")
    print(f"{len(acknowledged)} acknowledged commits are there, {refused} were refused")
    print(f"{owners} assignments, no partition with two owners")


def main() -> None:
    parser = argparse.ArgumentParser(description="Kills what Muster is made of, and checks what clients were told.")
    parser.add_argument("--seed", type=int, default=1, help="what is killed, in which order and after which pauses")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long")
    parser.add_argument("--keep", type=Path, help="a directory for tables and logs, which stay there")
    parser.add_argument(
        "--executors", action="store_true", help="run Spark with two executors in processes of their own"
    )
    asked = parser.parse_args()
    if asked.keep is not None:
        asked.keep.mkdir(parents=True)
        run(asked.keep, asked.seed, asked.minutes, executors=asked.executors)
        return
    with tempfile.TemporaryDirectory(prefix="muster-nemesis-") as directory:
        run(Path(directory), asked.seed, asked.minutes, executors=asked.executors)


if __name__ == "__main__":
    stopping.run(main)
