"""Worlds as Spark tasks: some seeds of a scenario each, with what came of them in the files of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from coordinator_udf import stopping
from coordinator_udf.groups.decisions import Decisions
from coordinator_udf.replay.tasks.spark_tasks import in_tasks
from coordinator_udf.shard.outputs import to_output_rows
from coordinator_udf.simulation.garbage import look_for_garbage_rarely
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.scenario_fields import Scenario
from coordinator_udf.simulation.violation import Violation
from coordinator_udf.simulation.world import World
from coordinator_udf.tables.assignment_join import complete_assignments
from coordinator_udf.tables.output_places import check_folder
from coordinator_udf.tables.outputs import Outputs
from coordinator_udf.tables.parquet_files import TableFile, TableFiles, commit, nothing_left_behind, refuse_existing
from coordinator_udf.tables.rows import to_tables
from coordinator_udf.user_errors import InputError
from schemas.simulation import MEMBER_EVENTS_TABLE, VIOLATIONS_TABLE, member_events_arrow, violations_arrow

#: Worlds of a task, so that there are some tasks a core and progress can be told: 100 worlds are five, with half ten,
#: with double three, of which two cores wait for one at the end.
_WORLDS_A_TASK = 20


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """What to simulate: scenario files, and from which seed on how many worlds of each."""

    scenarios: tuple[Path, ...]
    out: Path
    first_seed: int
    seeds: int
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class FoundViolation:
    """A violation and the world that it is in."""

    scenario: str
    seed: int
    violation: Violation


@dataclass(frozen=True, slots=True)
class _Unit:
    name: str
    scenario: Scenario
    first_seed: int
    seeds: int
    out: Path


@dataclass(frozen=True, slots=True)
class _Result:
    files: list[TableFile]
    found: list[FoundViolation]


def check_request(request: SimulationRequest) -> dict[str, Scenario]:
    """Reads the scenarios, by their files' names, before a session is started for them.

    Raises:
        InputError: a file is no scenario, two have one name, no tables can be made there, or there are some in the way.
        SettingsError: a setting of a scenario's coordinator can't be.
    """
    scenarios = {path.stem: read_scenario(path) for path in request.scenarios}
    if len(scenarios) < len(request.scenarios):
        raise InputError("two scenarios have the same file name, which names their worlds; rename one")
    check_folder(request.out)
    refuse_existing(request.out, request.overwrite)
    return scenarios


def simulate(spark: SparkSession, request: SimulationRequest, say: Callable[[str], None]) -> list[FoundViolation]:
    """Runs all worlds of a request and commits their tables; returns what must not have been.

    Raises:
        InputError, SettingsError: as `check_request`. Nothing was written then.
    """
    out = request.out.absolute()
    units = [
        _Unit(name, scenario, first, min(_WORLDS_A_TASK, request.first_seed + request.seeds - first), out)
        for name, scenario in check_request(request).items()
        for first in range(request.first_seed, request.first_seed + request.seeds, _WORLDS_A_TASK)
    ]
    out.mkdir(parents=True, exist_ok=True)
    with nothing_left_behind(out):
        results = in_tasks(spark, units, _run, say)
    with stopping.deferred():
        commit(out, (file for result in results for file in result.files))
    return [found for result in results for found in result.found]


def _run(unit: _Unit) -> _Result:
    look_for_garbage_rarely()
    files = TableFiles(unit.out)
    found = []
    for seed in range(unit.first_seed, unit.first_seed + unit.seeds):
        source = f"{unit.name}/{seed}"
        history = World(draw_world(unit.scenario, seed), seed).run()
        broken = violations(history)
        files.write(world_tables(source, history, broken))
        found += [FoundViolation(unit.name, seed, violation) for violation in broken]
    return _Result(files.close(), found)


def world_tables(source: str, history: History, broken: Sequence[Violation]) -> dict[str, pa.Table]:
    """Returns the rows of a world: of a coordinator's tables, of what members did, and of violations."""
    decided = [
        rows
        for partition, of_shard in enumerate(history.decided_by_each)
        for rows in to_output_rows(_joined(of_shard), source, partition)
    ]
    outputs = complete_assignments(Outputs.of(decided), lambda wanted: {})
    events = [
        {
            "source": source,
            "seq": seq,
            "ts": event.ts_ms * 1000,
            "group_id": event.group_id,
            "client_id": event.client_id,
            "run": event.run,
            "event": event.event,
            "partitions": [{"topic": place.topic, "partition": place.partition} for place in event.partitions],
            "detail": event.detail,
        }
        for seq, event in enumerate(history.events)
    ]
    told = [
        {
            "source": source,
            "seq": seq,
            "ts": violation.ts_ms * 1000,
            "group_id": violation.group_id,
            "kind": violation.kind,
            "detail": violation.detail,
        }
        for seq, violation in enumerate(broken)
    ]
    return {
        **to_tables(outputs),
        MEMBER_EVENTS_TABLE: _table(events, member_events_arrow()),
        VIOLATIONS_TABLE: _table(told, violations_arrow()),
    }


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)


def _joined(parts: Iterable[Decisions]) -> Decisions:
    joined = Decisions()
    for part in parts:
        for kind, rows in part.by_kind().items():
            getattr(joined, kind).extend(rows)
    return joined
