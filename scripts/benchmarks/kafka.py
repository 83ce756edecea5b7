"""Kafka's own coordinator, in one thread of Java: a jar whose command ``bench`` prints rates."""

from __future__ import annotations

import re
import shutil
import subprocess

from scripts.benchmarks.running import BenchmarkError, Options

_LINE = re.compile(
    r"(?P<what>heartbeats|joins).* run \d+: (?P<wall>\d+) /s wall, (?P<thread>\d+) per second of the thread's cpu, "
    r"(?P<process>\d+) of the process's"
)


def why_not(options: Options) -> str | None:
    """Returns why Kafka isn't measured; None if it can be."""
    if options.oracle_jar is None:
        return "Kafka's own coordinator was not run beside: no --oracle-jar was given"
    if not options.oracle_jar.is_file():
        return f"Kafka's own coordinator was not run beside: there is no {options.oracle_jar}"
    if shutil.which("java") is None:
        return "Kafka's own coordinator was not run beside: there is no java on PATH"
    return None


def run_once(options: Options, groups: int, members: int, heartbeats: int) -> dict[str, dict[str, float]]:
    """Measures rates per second by ``wall``, ``thread`` and ``process`` CPU time, of ``heartbeats`` and ``joins``.

    Of the two runs in one JVM the second counts, when most is compiled.

    Raises:
        BenchmarkError: it failed, or said something else.
    """
    sizes = [str(groups), str(members), str(heartbeats), "2"]
    command = ["java", "-Xmx4g", "-XX:+UseSerialGC", "-jar", str(options.oracle_jar), "bench", *sizes]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {match["what"]: match for match in _LINE.finditer(done.stdout)}
    if done.returncode != 0 or set(found) != {"heartbeats", "joins"}:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise BenchmarkError(f"{' '.join(command)} ended with {done.returncode} and gave no rates: {said}")
    clocks = ("wall", "thread", "process")
    return {what: {clock: float(match[clock]) for clock in clocks} for what, match in found.items()}
