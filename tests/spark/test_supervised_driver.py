"""A driver on a standalone cluster: its worker dies with all that it runs, and the other one starts it again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from coordinator_udf.tables.spark_session import KAFKA_JARS, RESOLVED_JARS
from scripts.ports import free_port
from tests.conftest import ROOT
from tests.gateway import history
from tests.members.kafka_broker import KafkaBroker
from tests.nightly import only_at_night
from tests.process_groups import kill_group, with_title
from tests.spark.kafka_fleet import START_S, KafkaFleet, make_topics
from tests.spark.local_cluster import own_environment, packaged
from tests.waiting import wait

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    only_at_night("test_kafka_log.py kills a driver that this machine runs, and starts it again"),
]

SPARK = Path(pyspark.__path__[0])
PLACES = {("t1", number) for number in range(4)}
#: A worker of which the master hears nothing is given up after 20 s in place of a minute, and heard of four times in
#: those. Submissions by HTTP would have a port that is always the same.
_OF_DAEMONS = "-Dspark.worker.timeout=20 -Dspark.master.rest.enabled=false"
#: What a worker starts for a driver that was submitted.
_DRIVER = b"org.apache.spark.deploy.worker.DriverWrapper"


class StandaloneCluster:
    """A master and two workers on this machine."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self.address = f"spark://127.0.0.1:{free_port()}"
        port = self.address.rpartition(":")[2]
        self._daemon("master.Master", "--host", "127.0.0.1", "--port", port)
        self._workers = [
            self._daemon(
                *("worker.Worker", "--host", "127.0.0.1", "--cores", "2", "--memory", "3g"),
                *("--work-dir", str(directory / f"worker-{number}"), self.address),
            )
            for number in range(2)
        ]
        # Whoever submits before the master has been elected is not answered.
        (said,) = directory.glob("master.*")
        wait(lambda: said.read_text().count("Registering worker") == 2, "both workers are known", self.story, START_S)

    def submit(self, *job: str) -> None:
        """Gives the cluster a driver that it starts again when it dies."""
        jars = ",".join(word for file in (RESOLVED_JARS, KAFKA_JARS) for word in file.read_text().split())
        (spark_core,) = (SPARK / "jars").glob("spark-core_*.jar")
        settings = {
            "spark.pyspark.python": sys.executable,
            "spark.executor.memory": "700m",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        command = [
            *(str(SPARK / "bin" / "spark-submit"), "--master", self.address, "--deploy-mode", "cluster", "--supervise"),
            *("--jars", jars, "--class", "org.apache.spark.deploy.PythonRunner"),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            *(f"file:{spark_core}", str(ROOT / "jobs" / job[0]), str(packaged(self._directory)), *job[1:]),
        ]
        done = subprocess.run(
            command, env=own_environment(), cwd=self._directory, capture_output=True, timeout=START_S, check=False
        )
        assert done.returncode == 0, done.stderr.decode()[-4_000:]

    def kill_worker_of_driver(self) -> None:
        """Kills the worker that has the driver, with the driver and all else that it runs."""
        sessions = {session for _, session in with_title(_DRIVER)}
        victims = [worker for worker in self._workers if worker.pid in sessions]
        assert len(victims) == 1, self.story()
        kill_group(victims[0])

    def story(self) -> str:
        """What daemons and drivers have said at last."""
        files = [*self._directory.glob("*.log"), *self._directory.glob("worker-*/driver-*/std*")]
        return "\n\n".join(f"{file}\n{file.read_text(errors='replace')[-4_000:]}" for file in files)

    def _daemon(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        web = str(free_port())
        command = [
            str(SPARK / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{name}",
            "--webui-port",
            web,
            *arguments,
        ]
        environment = {**own_environment(), "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _OF_DAEMONS}
        with (self._directory / f"{name}-{web}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        self._stack.callback(kill_group, process)
        return process


def acknowledged(committer: history.Committer, since: int = 0) -> int:
    """How many commits were acknowledged, of those from an attempt's number on."""
    return sum(attempt.acknowledged for attempt in committer.attempts[since:])


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[StandaloneCluster]:
    directory.mkdir()
    with ExitStack() as stack:
        yield StandaloneCluster(directory, stack)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds the driver's worker by /proc")
def test_a_driver_comes_back_on_another_worker_and_no_commit_is_lost(tmp_path: Path) -> None:
    if not KAFKA_JARS.is_file():
        pytest.skip("scripts/setup hasn't fetched Spark's source of Kafka topics")
    for name in ("broker", "fleet"):
        (tmp_path / name).mkdir()
    with KafkaBroker(tmp_path / "broker", {"t1": 4}, {}) as broker, standalone_cluster(tmp_path / "cluster") as cluster:
        log = f"kafka://{broker.address}/requests"
        make_topics(log)
        fleet = KafkaFleet(tmp_path / "fleet", broker, log=log)
        gateway = fleet.gateways[0]
        try:
            gateway.start()
            checkpoint = str(fleet.root / "checkpoint")
            cluster.submit(
                *("coordinator_stream.py", "--source", "kafka", "--log", log, "--config", str(fleet.config)),
                *("--tables", str(fleet.tables), "--checkpoint", checkpoint),
            )
            gateway.wait_until_ready()
            with history.Committer(fleet.addresses[0], "simple", PLACES, 1) as committer:
                wait(lambda: acknowledged(committer) > 5, "commits go through", cluster.story, START_S)
                cluster.kill_worker_of_driver()
                before = len(committer.attempts)
                wait(lambda: acknowledged(committer, before) > 5, "they do so again", cluster.story, START_S)
        finally:
            gateway.kill()
    assert history.assert_commits_are_whole(history.records(fleet.tables), committer) > 10
