"""A request log of many groups that live for some minutes: the input of the replay benchmark, made once and kept.

Each member beats every three seconds and commits every two minutes; each group rebalances once in ten minutes. With the
joins that begin it all, about 95 of 100 requests are heartbeats.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from schemas.requests import request_log_arrow
from scripts.benchmarks import workload
from scripts.benchmarks.running import say
from scripts.benchmarks.workload import Columns, Group, Rows

HEARTBEAT_MS = 3_000
COMMIT_MS = 120_000
REBALANCE_MS = 600_000
#: When the groups are stable and the members begin to beat.
_ALIVE_MS = workload.START_MS + 7_000

_SCHEMA = request_log_arrow()
_FORMAT = 1


class LogFacts(msgspec.Struct, frozen=True):
    """What a generated log holds."""

    format: int
    requests: int
    heartbeats: int
    groups: int
    members: int
    partitions: int


def generated(directory: Path, requests: int, groups: int, members: int, partitions: int) -> tuple[Path, LogFacts]:
    """Returns the log as a Delta table, partitioned by ``partition`` and ordered by ``offset``.

    Made if it isn't there.
    """
    path = directory / f"log-{requests}-{groups}x{members}-{partitions}"
    facts_file = path / "facts.json"
    if facts_file.is_file():
        facts = msgspec.json.decode(facts_file.read_bytes(), type=LogFacts)
        if facts.format == _FORMAT:
            return path, facts
    shutil.rmtree(path, ignore_errors=True)
    span_ms = _span_ms(requests, groups * members)
    rows = heartbeats = 0
    for partition, of_shard in enumerate(workload.make_groups(groups, members, partitions)):
        if not of_shard:
            continue
        table, beats = _shard_log(partition, of_shard, span_ms)
        write_deltalake(str(path), table, mode="append", partition_by=["partition"])
        rows += len(table) - pc.sum(pc.equal(table.column("api"), "Tick")).as_py()
        heartbeats += beats
        if partition % 10 == 9:
            say(f"request log: {rows:,} requests of {partition + 1} of {partitions} partitions")
    facts = LogFacts(_FORMAT, rows, heartbeats, groups, members, partitions)
    facts_file.write_bytes(msgspec.json.encode(facts))
    return path, facts


def _span_ms(requests: int, members: int) -> int:
    """Returns how long the groups live so that there are about so many requests."""
    first = 3 * members
    per_member_ms = 1 / HEARTBEAT_MS + 1 / COMMIT_MS + 2 / REBALANCE_MS
    return max(int((requests - first) / (members * per_member_ms)), 2 * HEARTBEAT_MS)


def _shard_log(partition: int, groups: Sequence[Group], span_ms: int) -> tuple[pa.Table, int]:
    """Returns a shard's rows in order, and how many of them are heartbeats."""
    seed = np.random.default_rng(partition)
    rows = Rows(partition)
    first = [_table(columns) for columns in workload.life(rows, groups)]
    moments = _ALIVE_MS + seed.integers(0, REBALANCE_MS, len(groups))
    beats = _heartbeats(partition, groups, moments, span_ms, seed)
    for group, moment in zip(groups, moments.tolist(), strict=True):
        _commits(rows, group, moment, span_ms)
        if moment < _ALIVE_MS + span_ms:
            workload.add_joins(rows, group, moment)
            workload.add_syncs(rows, group, moment)
    return _ordered(pa.concat_tables([*first, _table(rows.take()), beats])), len(beats)


def _commits(rows: Rows, group: Group, rebalanced_ms: int, span_ms: int) -> None:
    for number in range(span_ms // COMMIT_MS):
        ts = _ALIVE_MS + number * COMMIT_MS + 1_500
        now = Group(group.group_id, group.partition, group.member_ids, 1 + (ts >= rebalanced_ms))
        workload.add_commits(rows, [now], ts, number)


def _heartbeats(
    partition: int, groups: Sequence[Group], moments: np.ndarray, span_ms: int, seed: np.random.Generator
) -> pa.Table:
    group_of = np.repeat(np.arange(len(groups)), [len(group.member_ids) for group in groups])
    rounds = span_ms // HEARTBEAT_MS
    phases = seed.integers(0, HEARTBEAT_MS, len(group_of))
    ts = (_ALIVE_MS + phases[None, :] + HEARTBEAT_MS * np.arange(rounds)[:, None]).ravel()
    member = np.tile(np.arange(len(group_of)), rounds)
    group = group_of[member]
    generation = 1 + (ts >= moments[group])
    member_ids = pa.array([member_id for one in groups for member_id in one.member_ids])
    group_ids = pa.array([one.group_id for one in groups])
    count = len(ts)
    known = {
        "source": pa.repeat("live", count),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
        "offset": pa.repeat(0, count),
        "log_ts": pa.array(ts),
        "api": pa.repeat("Heartbeat", count),
        "api_version": pa.repeat(pa.scalar(4, pa.int32()), count),
        "group_id": group_ids.take(pa.array(group)),
        "member_id": member_ids.take(pa.array(member)),
        "generation_or_epoch": pa.array(generation, pa.int32()),
        "client_id": pa.repeat("consumer", count),
        "client_host": pa.repeat("/10.0.0.1", count),
        "parts": pa.repeat(pa.scalar(1, pa.int32()), count),
    }
    return pa.table([known.get(field.name, pa.nulls(count, field.type)) for field in _SCHEMA], schema=_SCHEMA)


def _table(columns: Columns) -> pa.Table:
    count = len(columns["api"])
    arrays = [
        pa.repeat("live", count) if field.name == "source" else pa.array(columns[field.name], field.type)
        for field in _SCHEMA
    ]
    return pa.table(arrays, schema=_SCHEMA)


def _ordered(table: pa.Table) -> pa.Table:
    """Sorts by time; at one time heartbeats come last, so that they are of the generation that they name."""
    is_beat = np.asarray(pc.equal(table.column("api"), "Heartbeat"))
    table = table.take(pa.array(np.lexsort((is_beat, np.asarray(table.column("log_ts"))))))
    offsets = pa.array(np.arange(len(table)))
    partition = str(table.column("partition")[0].as_py())
    request_ids = pc.binary_join_element_wise(partition, offsets.cast(pa.string()), "-")
    for name, column in (("offset", offsets), ("request_id", request_ids)):
        table = table.set_column(table.column_names.index(name), _SCHEMA.field(name), column)
    return table
