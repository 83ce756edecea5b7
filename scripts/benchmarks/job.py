"""A job of jobs/ as a process of its own, with the memory that it and its workers take."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.benchmarks.running import ROOT, BenchmarkError, tree_use


class Job:
    """A running job.

    Attributes:
        process: the process that was started; its children are the JVM and Spark's Python workers.
        peak_bytes: the most resident memory of all of them together, by what they run.
    """

    def __init__(self, script: str, arguments: Sequence[str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.peak_bytes: dict[str, int] = {}
        self._cpu_s: dict[int, float] = {}
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        self.started = time.perf_counter()
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / script), *arguments], stdout=out, stderr=out, env=environment, cwd=ROOT
            )
        self._watcher = threading.Thread(target=self._watch, name="memory-watcher", daemon=True)
        self._watcher.start()

    def wait(self, timeout_s: float) -> float:
        """Waits for the end; how long the job took, in seconds.

        Raises:
            BenchmarkError: it failed or took too long.
        """
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise BenchmarkError(f"the job took longer than {timeout_s:.0f} s; its output is in {self.log}") from error
        took = time.perf_counter() - self.started
        if status != 0:
            last = self.log.read_text(errors="replace").strip().splitlines()[-3:]
            raise BenchmarkError(f"the job ended with status {status}; its output is in {self.log}: {last}")
        return took

    @property
    def cpu_s(self) -> float:
        """CPU time of all its processes so far, in seconds, as of the last look a quarter of a second ago."""
        return sum(self._cpu_s.values())

    def check(self) -> None:
        """Raises BenchmarkError if the job isn't running any more."""
        if self.process.poll() is not None:
            self.wait(0)
            raise BenchmarkError(f"the job ended too early; its output is in {self.log}")

    def stop(self) -> None:
        """Ends the job if it runs, politely first."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _watch(self) -> None:
        most = 0
        while self.process.poll() is None:
            used = tree_use(self.process.pid)
            sizes: dict[str, int] = {}
            for process, use in used.items():
                sizes[use.kind] = sizes.get(use.kind, 0) + use.resident_bytes
                self._cpu_s[process] = use.cpu_s
            if sum(sizes.values()) > most:
                most, self.peak_bytes = sum(sizes.values()), sizes
            time.sleep(0.25)


@contextmanager
def running(script: str, arguments: Sequence[str], log: Path) -> Iterator[Job]:
    """Gives a job that is stopped in the end, whatever happens."""
    job = Job(script, arguments, log)
    try:
        yield job
    finally:
        job.stop()
