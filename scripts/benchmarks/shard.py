"""`shard`: the pure core in one process, and Kafka's own coordinator in turn with it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.batches import process_batch
from coordinator_udf.shard.shard import Shard
from coordinator_udf.tables.outputs import Outputs
from schemas.requests import request_log_arrow
from scripts.benchmarks import kafka, workload
from scripts.benchmarks.results import Outcome
from scripts.benchmarks.running import BenchmarkError, Clock, Options, Rates, median, say
from scripts.benchmarks.workload import Columns, Group, Rows

MEMBERS = 10
SHARDS = 50
DEFAULTS = Settings()

#: As many of each group as Kafka's benchmark has in a run.
_REBALANCES = 2

_REQUESTS = request_log_arrow()


@dataclass(slots=True)
class Cluster:
    """Shards with their groups; every group is stable."""

    shards: list[Shard]
    groups: list[list[Group]]
    rows: list[Rows]
    now_ms: int = workload.START_MS + 10_000
    commits: int = 0

    @classmethod
    def grown(cls, groups: int, members: int, shards: int, settings: Settings = DEFAULTS) -> Cluster:
        """Returns groups that were joined and synced."""
        made = workload.make_groups(groups, members, shards)
        cluster = cls([Shard(p, settings) for p in range(shards)], made, [Rows(p) for p in range(shards)])
        for shard, rows, of_shard in zip(cluster.shards, cluster.rows, made, strict=True):
            for columns in workload.life(rows, of_shard):
                process_batch(shard, "live", _batch(columns))
        # A process of Spark's holds a few shards and has little to look through for garbage; this one holds all.
        gc.collect()
        gc.freeze()
        return cluster

    @property
    def members(self) -> int:
        """How many members there are in all."""
        return sum(len(group.member_ids) for groups in self.groups for group in groups)

    def measure(self, make: Callable[[Rows, list[Group]], None]) -> Clock:
        """Handles what ``make`` makes for each shard, which is done before the clock runs.

        Raises:
            BenchmarkError: an answer is an error, or one is missing.
        """
        clock = Clock()
        for shard, rows, groups in zip(self.shards, self.rows, self.groups, strict=True):
            make(rows, groups)
            batch = _batch(rows.take())
            gc.collect()
            with clock.running():
                outputs = process_batch(shard, "live", batch)
            _check(batch.num_rows, outputs.outputs())
        return clock

    def heartbeats(self, rounds: int = 1) -> Clock:
        """Sends a heartbeat of each member every three seconds, so many times."""
        began_ms = self.now_ms + 3_000
        self.now_ms += 3_000 * rounds

        def make(rows: Rows, groups: list[Group]) -> None:
            for number in range(rounds):
                workload.add_heartbeats(rows, groups, began_ms + 3_000 * number, 3_000)

        return self.measure(make)

    def rebalances(self, rounds: int = 1) -> Clock:
        """Has each member join and sync so many times more, group by group."""
        self.now_ms += 3_000

        def make(rows: Rows, groups: list[Group]) -> None:
            for _ in range(rounds):
                for group in groups:
                    workload.add_joins(rows, group, self.now_ms)
                    workload.add_syncs(rows, group, self.now_ms)

        return self.measure(make)

    def commit(self) -> Clock:
        """Commits one partition for each member."""
        self.now_ms += 3_000
        self.commits += 1
        return self.measure(lambda rows, groups: workload.add_commits(rows, groups, self.now_ms, self.commits))


def _batch(columns: Columns) -> pa.RecordBatch:
    """Returns rows as the stream and the replay hand them to a shard."""
    given = {**columns, "source": ["live"] * len(columns["api"])}
    return pa.record_batch([pa.array(given[field.name], field.type) for field in _REQUESTS], schema=_REQUESTS)


def _check(requests: int, outputs: Outputs) -> None:
    answers = outputs.responses.column("error_code").to_pylist()
    wrong = [code for code in answers if code != 0]
    if wrong or len(answers) != requests:
        raise BenchmarkError(
            f"{requests} requests were answered {len(answers)} times, {len(wrong)} times with errors "
            f"({sorted(set(wrong), key=str)[:3]}): what was measured is not what was meant"
        )


def run(options: Options) -> Outcome:
    """Measures heartbeats, joins with their syncs and commits a second; ratios to Kafka's where its jar is there."""
    outcome = Outcome()
    groups = options.sized(10_000, 50)
    shards = min(SHARDS, groups)
    cluster = Cluster.grown(groups, MEMBERS, shards)
    cluster.heartbeats()
    missing = kafka.why_not(options)
    ours = {"heartbeats": Rates(), "joins": Rates(), "commits": Rates()}
    theirs: list[dict[str, dict[str, float]]] = []
    for number in range(options.repeats):
        say(f"shard: run {number + 1} of {options.repeats}")
        ours["heartbeats"].add(cluster.members, cluster.heartbeats())
        ours["joins"].add(cluster.members * _REBALANCES, cluster.rebalances(_REBALANCES))
        cluster.heartbeats()
        ours["commits"].add(cluster.members, cluster.commit())
        if missing is None:
            say(f"shard: run {number + 1} of {options.repeats}, Kafka")
            theirs.append(kafka.run_once(options, groups, MEMBERS, options.sized(2_000_000, 20_000)))
    for what, rates in ours.items():
        outcome.add(what, median(rates.cpu), "/s CPU")
        outcome.add(f"{what} (wall)", median(rates.wall), "/s")
    if missing is not None:
        outcome.notes.append(missing)
    else:
        _compare(outcome, ours, theirs)
    outcome.notes.append(f"{groups} groups of {MEMBERS} members in {shards} shards; a join counts with its sync")
    return outcome


def _compare(outcome: Outcome, ours: dict[str, Rates], theirs: list[dict[str, dict[str, float]]]) -> None:
    for what in ("heartbeats", "joins"):
        for clock in ("process", "thread", "wall"):
            outcome.add(f"Kafka's {what} ({clock})", median([run[what][clock] for run in theirs]), "/s", "neither")
        kafkas = median([run[what]["process"] for run in theirs])
        outcome.add(f"{what}, ratio to Kafka's", median(ours[what].cpu) / kafkas, "CPU time of the process")
        kafkas = median([run[what]["wall"] for run in theirs])
        outcome.add(f"{what}, ratio to Kafka's (wall)", median(ours[what].wall) / kafkas, "wall time")
