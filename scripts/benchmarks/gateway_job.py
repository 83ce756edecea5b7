"""The live job with a gateway in its driver, as a process that benchmarks start, stop and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.benchmarks.running import ROOT, BenchmarkError, wait_until
from scripts.benchmarks.wire_client import TLS
from scripts.ports import free_port

START_S = 240.0

#: Of /proc/PID/stat, after the name: the session, and the ticks of a process and of its children that have ended.
_SESSION = 3
_TIMES = (11, 12, 13, 14)


class LiveJob:
    """The live job with a gateway in its driver; it can be stopped for a while, killed, and started again."""

    def __init__(self, root: Path, delay_ms: int, kafka_log: str | None = None) -> None:
        self.root = root
        self.source = [] if kafka_log is None else ["--source", "kafka", "--log", kafka_log]
        self.address = f"127.0.0.1:{free_port()}"
        self.config = root / "coordinator.toml"
        self._log = root / "job.log"
        self.config.write_text(
            f'group.initial.rebalance.delay.ms = {delay_ms}\n[[topics]]\nname = "t1"\npartitions = 4\n'
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; returns when clients can connect.

        Raises:
            BenchmarkError: it doesn't start.
        """
        command = [sys.executable, str(ROOT / "jobs" / "coordinator_stream.py"), "--root", str(self.root / "live")]
        command += ["--config", str(self.config), "--listen", self.address, *self.source]
        with self._log.open("wb") as output:
            job = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        self._process = job
        said = f"listening on {self.address}"
        wait_until(lambda: said in self._log.read_text() or job.poll() is not None, START_S, "the live job")
        if job.poll() is not None:
            raise BenchmarkError(f"the live job ended: {self._log.read_text()[-1_000:]}")

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the driver, its JVM and Python's workers."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def cpu_s(self) -> float:
        """Returns the CPU time that the driver, its JVM and Python's workers have taken, in seconds.

        Those that ended too.
        """
        assert self._process is not None
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended since
            if int(fields[_SESSION]) == self._process.pid:
                ticks += sum(int(fields[place]) for place in _TIMES)
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Kills it."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()


@contextmanager
def started_job(delay_ms: int, kafka_log: str | None = None) -> Iterator[LiveJob]:
    """Gives the live job, serving clients."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        job = LiveJob(Path(directory), delay_ms, kafka_log)
        try:
            job.start()
            yield job
        finally:
            job.end()


@contextmanager
def live_job(delay_ms: int, kafka_log: str | None = None) -> Iterator[str]:
    """Runs the live job with a gateway; gives its address.

    Raises:
        BenchmarkError: it doesn't start.
    """
    with started_job(delay_ms, kafka_log) as job:
        yield job.address


@contextmanager
def own_gateway(job: LiveJob, *, tls: bool = False) -> Iterator[str]:
    """Runs a gateway in a process of its own, before the job's log; gives its address.

    Raises:
        BenchmarkError: it doesn't start.
    """
    arguments = ["--config", str(job.config), "--root", str(job.root / "live"), *job.source[2:]]
    with gateway_process(job.root, arguments, tls=tls) as address:
        yield address


@contextmanager
def gateway_process(directory: Path, arguments: Sequence[str], *, tls: bool = False) -> Iterator[str]:
    """Runs a gateway in a process of its own; gives its address.

    Args:
        directory: where its files go.
        arguments: of jobs/gateway.py, but where it listens and how it is locked.

    Raises:
        BenchmarkError: it doesn't start.
    """
    address = f"127.0.0.1:{free_port()}"
    log = directory / f"gateway-{address.rpartition(':')[2]}.log"
    command = [sys.executable, str(ROOT / "jobs" / "gateway.py"), "--listen", address, *arguments]
    if tls:
        command += ["--security", str(_security(directory))]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until(lambda: "listening on" in log.read_text() or process.poll() is not None, START_S, "the gateway")
        if process.poll() is not None:
            raise BenchmarkError(f"the gateway ended: {log.read_text()[-1_000:]}")
        yield f"{TLS}{address}" if tls else address
    finally:
        process.terminate()
        process.wait()


def _security(directory: Path) -> Path:
    """Returns a file of --security with TLS alone, and a certificate that nobody signed but itself."""
    key, certificate, file = directory / "key.pem", directory / "certificate.pem", directory / "security.toml"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    made = subprocess.run([*new, "-keyout", str(key), "-out", str(certificate)], capture_output=True, check=False)
    if made.returncode:
        raise BenchmarkError(f"openssl made no certificate: {made.stderr.decode()[-300:]}")
    (directory / "gateway.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
    file.write_text('security.protocol = "SSL"\nssl.keystore.location = "gateway.pem"\n')
    return file
