"""Groups on an embedded log that send heartbeats at a given rate, and what the running job wrote down of them."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from coordinator_udf.log.embedded import EmbeddedLog
from schemas.requests import request_log_arrow
from scripts.benchmarks import workload
from scripts.benchmarks.job import Job, running
from scripts.benchmarks.running import BenchmarkError, wait_until
from scripts.benchmarks.stream_job import STEP_MS
from scripts.benchmarks.workload import Group, Rows

PARTITIONS = 8
MEMBERS = 10
APPENDS_PER_SECOND = 10

_SCHEMA = request_log_arrow()
_START_S = 600.0
_INITIAL_DELAY_S = 8.0
_GROUPS_AN_APPEND = 200


class Batch(msgspec.Struct):
    """What the job wrote of one micro-batch; ``append`` is where in the log it ended."""

    batch: int
    at: float
    ms: dict[str, int]
    state_bytes: int
    append: int


class Live:
    """A log, the job that reads it, and the groups that it coordinates."""

    def __init__(self, root: Path, groups: int) -> None:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        self.root = root
        self.log = EmbeddedLog.create(root / "log", PARTITIONS)
        self._groups = [group for shard in workload.make_groups(groups, MEMBERS, PARTITIONS) for group in shard]
        # A group's members beat together since they synced together, but groups know nothing of shards.
        random.Random(0).shuffle(self._groups)
        for group in self._groups:
            # However long the job takes to read them all: nobody is to be missed meanwhile.
            group.session_timeout_ms = 600_000
        members = [(group, member_id) for group in self._groups for member_id in group.member_ids]
        self._partitions = np.array([group.partition for group, _ in members])
        self._group_ids = pa.array([group.group_id for group, _ in members])
        self._member_ids = pa.array([member_id for _, member_id in members])
        self._next = 0
        self.offered = 0

    @contextmanager
    def job(self, *, floor: bool) -> Iterator[Job]:
        """Gives the job, once all groups are stable."""
        arguments = ["--root", str(self.root.absolute()), *(["--floor"] if floor else [])]
        with running("scripts/benchmarks/stream_job.py", arguments, self.root / "job.log") as job:
            self._read_to_the_end(job)
            self._append(lambda rows, group: workload.add_new_members(rows, [group], self.log.now_ms()))
            # The initial delay, which is prolonged once where members came meanwhile.
            time.sleep(_INITIAL_DELAY_S)
            self._append(lambda rows, group: workload.add_syncs(rows, group, self.log.now_ms()))
            self._read_to_the_end(job)
            yield job

    def _read_to_the_end(self, job: Job) -> None:
        end = self.log.end()

        def has_caught_up() -> bool:
            job.check()
            batches = self.batches()
            return bool(batches) and batches[-1].append >= end

        wait_until(has_caught_up, _START_S, "reading the log to its end")

    def offer(self, rate: int, seconds: float, job: Job) -> float:
        """Appends heartbeats at a rate for some time; when it began (seconds since the epoch)."""
        began = time.time()
        each = 1 / APPENDS_PER_SECOND
        for number in range(round(seconds * APPENDS_PER_SECOND)):
            due = round((number + 1) * rate * each) - round(number * rate * each)
            if due:
                self._append_heartbeats(due)
            job.check()
            time.sleep(max(began + (number + 1) * each - time.time(), 0))
        return began

    @property
    def members(self) -> int:
        """How many members there are."""
        return len(self._partitions)

    def batches(self) -> list[Batch]:
        """Returns the micro-batches so far."""
        file = self.root / "progress"
        if not file.is_file():
            return []
        # The last line may be only half there yet.
        lines = file.read_bytes().split(b"\n")[:-1]
        return [msgspec.json.decode(line, type=Batch) for line in lines]

    def latencies_ms(self, since: float) -> list[float]:
        """Returns the milliseconds from a request's append to its answer, of all answers given since then."""
        found: list[float] = []
        for line in (self.root / "answers").read_bytes().split(b"\n")[:-1]:
            at, steps, counts = msgspec.json.decode(line)
            if at >= since:
                late = [step for step in zip(steps, counts, strict=True) if at - step[0] * STEP_MS / 1_000 >= since]
                found += [float(step * STEP_MS) for step, count in late for _ in range(count)]
        return found

    def _append(self, add: Callable[[Rows, Group], None]) -> None:
        for start in range(0, len(self._groups), _GROUPS_AN_APPEND):
            columns: dict[str, list[Any]] = {}
            for group in self._groups[start : start + _GROUPS_AN_APPEND]:
                rows = Rows(group.partition, self.offered)
                add(rows, group)
                self.offered = rows.next_offset
                for name, values in rows.take().items():
                    columns.setdefault(name, []).extend(values)
            self.log.append_columns({name: self._array(name, values) for name, values in columns.items()})

    def _array(self, name: str, values: list[Any]) -> pa.Array:
        return pa.array(values, _SCHEMA.field(name).type)

    def _append_heartbeats(self, count: int) -> None:
        chosen = np.arange(self._next, self._next + count) % len(self._partitions)
        self._next = int(chosen[-1]) + 1
        rows = pa.array(chosen)
        numbers = pa.array(np.arange(self.offered, self.offered + count)).cast(pa.string())
        known = {
            "partition": pa.array(self._partitions[chosen], pa.int32()),
            "log_ts": pa.repeat(self.log.now_ms(), count),
            "request_id": numbers,
            "api": pa.repeat("Heartbeat", count),
            "api_version": pa.repeat(pa.scalar(4, pa.int32()), count),
            "group_id": self._group_ids.take(rows),
            "member_id": self._member_ids.take(rows),
            "generation_or_epoch": pa.repeat(pa.scalar(1, pa.int32()), count),
            "client_id": pa.repeat("consumer", count),
            "client_host": pa.repeat("/10.0.0.1", count),
            "parts": pa.repeat(pa.scalar(1, pa.int32()), count),
        }
        names = [name for name in _SCHEMA.names if name not in ("source", "offset")]
        self.log.append_columns({n: known.get(n, pa.nulls(count, _SCHEMA.field(n).type)) for n in names})
        self.offered += count


def measured(batches: Sequence[Batch], since: float, until: float) -> list[Batch]:
    """Returns the micro-batches that ended in a time.

    Raises:
        BenchmarkError: there are fewer than three.
    """
    chosen = [batch for batch in batches if since <= batch.at <= until]
    if len(chosen) < 3:
        raise BenchmarkError(f"only {len(chosen)} micro-batches ended in {until - since:.0f} s: measure for longer")
    return chosen
