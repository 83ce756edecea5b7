"""`replay`: a generated log of ten million requests through jobs/replay_requests.py, end to end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc
from deltalake import DeltaTable

from coordinator_udf.replay.inputs.own_log import ordered_shards, read_shard_files
from coordinator_udf.replay.tasks.shard_runner import ShardRunner
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.batches import process_batch
from coordinator_udf.shard.shard import Shard
from coordinator_udf.tables.queries import query
from scripts.benchmarks import kafka
from scripts.benchmarks.job import running
from scripts.benchmarks.request_log import LogFacts, generated
from scripts.benchmarks.results import Outcome
from scripts.benchmarks.running import BenchmarkError, Clock, Options, say

REQUESTS = 10_000_000
GROUPS = 10_000
MEMBERS = 10
PARTITIONS = 50

_TIMEOUT_S = 3_600.0


def run(options: Options) -> Outcome:
    """Returns requests a second of the whole job, its memory, and where a request's time goes."""
    outcome = Outcome()
    groups = options.sized(GROUPS, 50)
    requests = options.sized(REQUESTS, 20_000)
    say(f"replay: a request log of about {requests:,} requests, unless it is there")
    path, facts = generated(options.data, requests, groups, MEMBERS, min(PARTITIONS, groups))
    share = facts.heartbeats / facts.requests
    outcome.notes.append(
        f"{facts.requests:,} requests of {facts.groups:,} groups of {facts.members} members in {facts.partitions} "
        f"partitions, {share:.1%} of them heartbeats"
    )
    ours = _job(options, path, facts, outcome)
    _stages(options, path, outcome)
    _beside_kafka(options, path, facts, ours, outcome)
    return outcome


def _job(options: Options, path: Path, facts: LogFacts, outcome: Outcome) -> float:
    out = options.data / "replay-out"
    shutil.rmtree(out, ignore_errors=True)
    say("replay: the job")
    arguments = [str(path.absolute()), "--out", str(out.absolute())]
    with running("jobs/replay_requests.py", arguments, options.data / "replay.log") as job:
        seconds = job.wait(_TIMEOUT_S)
        peak, cpu = job.peak_bytes, job.cpu_s
    _check(out, facts)
    shutil.rmtree(out)
    idle_seconds, idle_cpu = _starting(options)
    outcome.add("requests, end to end", facts.requests / seconds, "/s")
    outcome.add("requests, without starting Spark", facts.requests / max(seconds - idle_seconds, 0.001), "/s")
    cores = len(os.sched_getaffinity(0))
    outcome.add("requests that the CPU time allows on all cores", facts.requests * cores / cpu, "/s")
    outcome.add("wall time", seconds, "s", "lower")
    outcome.add("wall time for an empty log", idle_seconds, "s", "neither")
    outcome.add("CPU time", cpu, "s", "lower")
    outcome.add("CPU time for an empty log", idle_cpu, "s", "neither")
    outcome.add("peak memory", sum(peak.values()) / 2**20, "MiB", "lower")
    for kind, size in sorted(peak.items()):
        outcome.add(f"peak memory, {kind}", size / 2**20, "MiB", "lower")
    return facts.requests / seconds


def _beside_kafka(options: Options, path: Path, facts: LogFacts, ours: float, outcome: Outcome) -> None:
    """Tells how fast Kafka's own coordinator would be with these requests, by what it takes for each kind."""
    missing = kafka.why_not(options)
    if missing is not None:
        outcome.notes.append(missing)
        return
    say("replay: Kafka")
    rates = kafka.run_once(options, facts.groups, facts.members, options.sized(2_000_000, 20_000))
    counted = query(DeltaTable(str(path)), "SELECT api, count(*) AS requests FROM rows GROUP BY api").read_all()
    asked = dict(zip(*(counted.column(name).to_pylist() for name in ("api", "requests")), strict=True))
    # Each join has its sync. What Kafka takes for a commit isn't measured: it is taken for nothing.
    seconds = asked["Heartbeat"] / rates["heartbeats"]["wall"] + asked["SyncGroup"] / rates["joins"]["wall"]
    outcome.add("Kafka's rate for the same mix, one thread", facts.requests / seconds, "/s", "neither")
    outcome.add("requests end to end, ratio to Kafka's", ours * seconds / facts.requests, "wall time")
    outcome.notes.append("Kafka's rate is reckoned from those of its heartbeats and joins, its commits for nothing")


def _check(out: Path, facts: LogFacts) -> None:
    """Checks that every request was answered, without an error but for those that ask for a member id."""
    codes: Counter[int] = Counter()
    for file in DeltaTable(str(out / "group_responses")).to_pyarrow_dataset().to_batches(columns=["error_code"]):
        for count in pc.value_counts(file.column(0)).to_pylist():
            codes[count["values"]] += count["counts"]
    expected = {0: facts.requests - facts.groups * facts.members, 79: facts.groups * facts.members}
    if dict(codes) != expected:
        raise BenchmarkError(f"the replay answered with errors {dict(codes)}, expected {expected}")


def _starting(options: Options) -> tuple[float, float]:
    """Measures wall and CPU time of the job for a log of almost nothing."""
    path, _ = generated(options.data, 100, 1, 1, 1)
    out = options.data / "replay-nothing"
    shutil.rmtree(out, ignore_errors=True)
    arguments = [str(path.absolute()), "--out", str(out.absolute())]
    with running("jobs/replay_requests.py", arguments, options.data / "replay-nothing.log") as job:
        used = job.wait(_TIMEOUT_S), job.cpu_s
    shutil.rmtree(out)
    return used


def _stages(options: Options, path: Path, outcome: Outcome) -> None:
    """Measures each stage's CPU time, for a tenth of the shards, in this process: a worker's part, without Spark."""
    shards = ordered_shards(path, path.name)
    if shards is None:
        raise BenchmarkError(f"{path} isn't ordered by shard and offset, so the job had to shuffle it")
    chosen = shards[: max(len(shards) // 10, 1)]
    rows = sum(unit.rows for unit in chosen)
    say(f"replay: the stages, for {rows:,} requests")
    read, handled, written = Clock(), Clock(), Clock()
    for unit in chosen:
        with read.running():
            batches = list(read_shard_files(unit))
        shard = Shard(batches[0].column("partition")[0].as_py(), Settings())
        with handled.running():
            for batch in batches:
                process_batch(shard, unit.source, batch)
        with tempfile.TemporaryDirectory(dir=options.data) as scratch, written.running():
            ShardRunner(Settings(), False, Path(scratch)).run(batches)
    for stage, seconds in (
        ("read", read.cpu),
        ("shard", handled.cpu),
        # The runner does both; what it takes beyond the shard's share is theirs.
        ("tables and their files", written.cpu - handled.cpu),
    ):
        outcome.add(f"CPU a request, {stage}", seconds / rows * 1e6, "µs", "lower")
