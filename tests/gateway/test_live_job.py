"""Real clients before the real live job: Spark in a process of its own, with a gateway in its driver."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from scripts.ports import free_port
from tests.conftest import ROOT
from tests.gateway import crowd, history
from tests.gateway.fleet import Fleet, Member, Place
from tests.gateway.history import Commit
from tests.gateway.test_configs import alter
from tests.gateway.wire import Wire
from tests.nightly import only_at_night
from tests.process_groups import kill_group
from tests.waiting import wait

JOB = ROOT / "jobs" / "coordinator_stream.py"
PLACES: set[Place] = {("t1", i) for i in range(4)} | {("t2", i) for i in range(2)}
BOTH = ("t1", "t2")

#: A cold JVM on a busy machine.
START_S = 300
#: The members' session timeout, and how long the coordinator is away at least: nobody may expire by that. On a busy
#: machine a session outlives some answers that take ten seconds, each of which a member waits for.
SESSION_MS = 30_000
AWAY_S = 32

pytestmark = [pytest.mark.slow, pytest.mark.spark]


class LiveJob:
    """The job as a person starts it, and starts again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._config = directory / "coordinator.toml"
        self._config.write_text(
            "group.initial.rebalance.delay.ms = 1000\n"
            "group.consumer.min.session.timeout.ms = 6000\n"
            f"group.consumer.session.timeout.ms = {SESSION_MS}\n"
            '[[topics]]\nname = "t1"\npartitions = 4\n[[topics]]\nname = "t2"\npartitions = 2\n'
        )
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.log = directory / "job.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def tables(self) -> Path:
        return self._directory / "live" / "tables"

    def start(self) -> None:
        command = [sys.executable, str(JOB), "--root", str(self._directory / "live"), "--config", str(self._config)]
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--listen", self.address], stdout=log, stderr=log, start_new_session=True
            )
        listening = f"listening on {self.address}".encode()
        wait(lambda: listening in self.log.read_bytes()[before:], "the job listens", self.log.read_text, START_S)

    def kill(self) -> None:
        """kill -9, of the JVM and of Python's workers too."""
        if self.process is not None:
            kill_group(self.process)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(120)

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(str(self.tables / name))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveJob]:
    job = LiveJob(tmp_path_factory.mktemp("job"))
    yield job
    if job.process is not None and job.process.poll() is None:
        job.kill()


@pytest.fixture
def job(started: LiveJob) -> LiveJob:
    """The job, started if it doesn't run: it takes long, and each test has a group of its own."""
    if started.process is None or started.process.poll() is not None:
        started.start()
    return started


def test_sessions_and_offsets_live_through_a_kill_and_a_pause_longer_than_a_session(
    job: LiveJob, tmp_path: Path
) -> None:
    fleet = Fleet(tmp_path, job.address, session_ms=SESSION_MS, heartbeat_ms=1_000)
    acknowledged: list[Commit] = []
    try:
        static = [
            fleet.start(client, group="static", topics=BOTH, instance=f"i-{client}")
            for client in ("kafka-python", "confluent")
        ]
        new = fleet.start("confluent", group="new", topics=BOTH, strategy="uniform", protocol="consumer")
        fleet.wait_for_assignment(static, PLACES)
        fleet.wait_for_assignment([new], PLACES)
        owned = [member.assignment for member in static]
        for offset, (member, group) in enumerate([(static[0], "static"), (static[1], "static"), (new, "new")]):
            place = min(member.assignment)
            member.order("committed", do="commit", place=place, offset=100 + offset)
            acknowledged.append((group, *place, 100 + offset))
        killed_ms = time.time() * 1_000
        job.kill()
        time.sleep(AWAY_S)
        job.start()
        for member, (_, topic, partition, offset) in zip([*static, new], acknowledged, strict=True):
            at = (topic, partition)
            wait(partial(_finds, member, at), "the coordinator answers again")
            assert member.order("found", do="find", place=at)["offset"] == offset
        assert [member.assignment for member in static] == owned
        assert new.assignment == PLACES
        # What a session that ended in the meantime would have left by now.
        time.sleep(2)
        transitions = job.table("group_transitions").to_pyarrow_table().to_pylist()
        assert [row for row in transitions if row["rule"] == "SESSION_EXPIRED" and row["ts"] >= killed_ms] == []
        static[1].kill()
        again = fleet.start("confluent", group="static", topics=BOTH, instance="i-confluent")
        wait(lambda: again.assignment == owned[1], "the instance has its partitions back", again.tail)
    finally:
        fleet.kill()
    _, owners = history.checked_records(job.tables, acknowledged)
    assert owners > 2


def test_three_libraries_form_one_group_and_everything_they_did_is_in_the_tables(job: LiveJob, tmp_path: Path) -> None:
    with Fleet(tmp_path, job.address, session_ms=45_000, heartbeat_ms=3_000) as fleet:
        first = fleet.start("kafka-python", group="three", topics=BOTH)
        fleet.wait_for_assignment([first], PLACES)
        others = [fleet.start(client, group="three", topics=BOTH) for client in ("confluent", "aiokafka")]
        fleet.wait_for_assignment([first, *others], PLACES)
        # One after the other: those that leave at one moment have one rebalance together, which one of them causes.
        while others:
            others.pop().close()
            fleet.wait_for_assignment([first, *others], PLACES)
        first.close()
    running = job.log.stat().st_size
    assert job.stop() == 0, job.log.read_text()
    # The ticker ends before the gateway, which it would miss.
    assert b"time stands still" not in job.log.read_bytes()[running:]
    transitions = job.table("group_transitions").to_pyarrow_table().to_pylist()
    assert [row["to_state"] for row in transitions if row["group_id"] == "three"][-1] == "Empty"
    assert {"kafka-python-0", "confluent-1", "aiokafka-2"} <= {row["cause_client_id"] for row in transitions}
    responses = job.table("group_responses").to_pyarrow_table()
    assert pc.sum(pc.equal(responses.column("error_code"), -1)).as_py() in (0, None)
    assert not (job.tables / "rejected_requests" / "_delta_log").exists() or not len(
        job.table("rejected_requests").to_pyarrow_table()
    )


#: How long the driver is stopped: longer than sessions are, so that clients end theirs on their own.
PAUSE_S = 60

#: The sessions of all members.
CROWD_SESSION_MS = 45_000

#: Groups of all libraries.
CROWD = {
    "mixed": ("confluent", "java", "kafka-python"),
    "new": ("confluent", "java", "confluent"),
    "go": ("franz-go", "sarama", "kafka-go"),
    "others": ("aiokafka", "confluent"),
    "node": ("kafkajs", "kafkajs"),
}


@only_at_night("the test above of three members, test_kafka_log.py of clients of three libraries")
@pytest.mark.parametrize("seed", [1])
def test_after_a_pause_and_kills_all_clients_are_well_again_and_no_commit_is_lost(
    job: LiveJob, tmp_path: Path, seed: int
) -> None:
    fleet = Fleet(tmp_path, job.address, session_ms=CROWD_SESSION_MS, heartbeat_ms=3_000)
    committer = history.Committer(job.address, f"simple-{seed}", PLACES, seed)
    try:
        with committer:
            with Wire(job.port) as wire:
                # Else an answer that takes ten seconds, as it may while clients of five languages start, costs it.
                assert alter(wire, 32, "new", ("consumer.session.timeout.ms", 0, str(CROWD_SESSION_MS))) == (0, None)
            groups = crowd.start(fleet, CROWD, PLACES)
            assert job.process is not None
            os.killpg(job.process.pid, signal.SIGSTOP)
            time.sleep(PAUSE_S)
            resumed_ms = time.time() * 1_000
            os.killpg(job.process.pid, signal.SIGCONT)
            took_s = crowd.wait_until_well(groups, START_S)
            print(f"well again {took_s:.1f} s after a pause of {PAUSE_S} s")
            # Some leave, some are killed, and the coordinator with them.
            chosen = random.Random(seed)
            gone = [chosen.choice(group.members) for group in groups]
            for number, member in enumerate(gone):
                member.kill() if number % 2 else member.close()
            job.kill()
            job.start()
            left = [replace(g, members=[m for m in g.members if m not in gone]) for g in groups]
            took_s = crowd.wait_until_well(left, START_S)
            print(f"well again {took_s:.1f} s after a kill")
    finally:
        fleet.kill()
    assert_no_group_waited_for_an_old_session(job, resumed_ms)
    found, owners = history.checked_records(job.tables, crowd.acknowledged(groups))
    assert owners > 4
    assert history.assert_commits_are_whole(found, committer) > 10


def assert_no_group_waited_for_an_old_session(job: LiveJob, resumed_ms: float) -> None:
    """Members whose clients came back under another id all expired at one moment, soon after the pause.

    Whom the coordinator heard of since then can't expire before a whole session has passed. Were old sessions simply to
    go on where they stood still, each would have a moment of its own.
    """
    transitions = job.table("group_transitions").to_pyarrow_table().to_pylist()
    expired = {
        row["ts"]
        for row in transitions
        if row["rule"] == "SESSION_EXPIRED"
        and row["group_id"] in CROWD.keys() - {"new"}
        and resumed_ms < row["ts"] < resumed_ms + CROWD_SESSION_MS
    }
    assert len(expired) == 1, expired


def _finds(member: Member, place: Place) -> bool:
    found: int = member.order("found", do="find", place=place)["offset"]
    return found >= 0
