"""A coordinator whose request log is a topic of a real broker, and two gateways before it: processes that die."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.ports import free_port
from tests.conftest import ROOT
from tests.gateway.upstream.test_two_gateways import GATEWAY_PORTS
from tests.members.kafka_broker import KafkaBroker
from tests.process_groups import kill_group
from tests.waiting import wait

START_S = 300

_SETTINGS = "group.initial.rebalance.delay.ms = 500\n"


def make_topics(log: str, *options: str) -> None:
    """Makes the topics of a log on a cluster of one broker, as a person does."""
    command = [sys.executable, "-m", "coordinator_udf.log.kafka.cli", "create", log, "--replication-factor", "1"]
    subprocess.run([*command, *options], cwd=ROOT, check=True, timeout=START_S)


class Process:
    """A command that is started, killed, and started again; what it says is in a file."""

    def __init__(self, log: Path, command: Sequence[str], ready: str) -> None:
        self.log = log
        self._command = [sys.executable, *command]
        self._ready = ready.encode()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Process:
        self._before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        return self

    def wait_until_ready(self) -> None:
        assert self._process is not None
        process = self._process
        wait(
            lambda: self._ready in self.log.read_bytes()[self._before :] or process.poll() is not None,
            "it is ready",
            self.log.read_text,
            START_S,
        )
        assert process.poll() is None, self.log.read_text()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9, of all that it started, too."""
        if self._process is not None and self._process.poll() is None:
            kill_group(self._process)

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(120)


class KafkaFleet:
    """The job and two gateways; the broker has the log and the records that members read.

    Args:
        upstream: the brokers of those records, if not the broker's plain port.
        options: more of the gateways.
        job_options: more of the job.
    """

    def __init__(
        self,
        directory: Path,
        broker: KafkaBroker,
        *options: str,
        log: str,
        job_options: Sequence[str] = (),
        upstream: str | None = None,
    ) -> None:
        self.root = directory / "live"
        self.log = log
        self._directory = directory
        self._job_options = job_options
        config = directory / "coordinator.toml"
        config.write_text(_SETTINGS)
        self.ports = [free_port(GATEWAY_PORTS), free_port(GATEWAY_PORTS)]
        self.addresses = [f"127.0.0.1:{port}" for port in self.ports]
        self.config = config
        shared = ["--root", str(self.root), "--log", log, "--config", str(config)]
        self.job = Process(
            directory / "job.log",
            [*self._job_command(), *job_options],
            "batch ",
        )
        known = ["--gateways", ",".join(self.addresses), "--upstream", upstream or broker.address]
        self.gateways = [
            Process(
                directory / f"gateway-{port}.log",
                [str(ROOT / "jobs" / "gateway.py"), *shared, "--listen", f"127.0.0.1:{port}", *known, *options],
                "listening on",
            )
            for port in self.ports
        ]

    def _job_command(self) -> list[str]:
        job = [str(ROOT / "jobs" / "coordinator_stream.py"), "--root", str(self.root), "--log", self.log]
        return [*job, "--config", str(self.config), "--source", "kafka"]

    def run_job(self, *options: str) -> str:
        """Runs the job to its end; what it said."""
        command = [sys.executable, *self._job_command(), *self._job_options, *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=START_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def another_job(self, *options: str) -> Process:
        """The job with other options, not started."""
        return Process(
            self._directory / "another.log", [*self._job_command(), *self._job_options, *options], "listening on"
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    def start(self) -> None:
        for process in (self.job, *self.gateways):
            process.start()
        for process in (self.job, *self.gateways):
            process.wait_until_ready()

    def kill(self) -> None:
        for process in (*self.gateways, self.job):
            process.kill()

    def everything_said(self) -> str:
        """What all processes have written, and what they are called by the system."""
        processes = [self.job, *self.gateways]
        titles = [Path(f"/proc/{process.pid}/cmdline") for process in processes if process.is_running]
        return "\n".join([*(title.read_text() for title in titles), *(p.log.read_text() for p in processes)])

    def story(self) -> str:
        return "\n\n".join(process.log.read_text()[-4_000:] for process in (self.job, *self.gateways))
