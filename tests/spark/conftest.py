"""What the tests of the stream share: the session with the coordinator's sources, recordings, and undisturbed runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from coordinator_udf.log.dataframe import request_log
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.in_process import Runs
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.settings.file import CoordinatorConfig
from coordinator_udf.streaming.coordinator import Coordinator
from coordinator_udf.streaming.options import StreamOptions
from coordinator_udf.streaming.sink import Rows
from coordinator_udf.tables.rows import to_tables
from schemas.requests import LIVE, REQUEST_COLUMNS
from schemas.tables import TABLES
from tests.conftest import SAMPLE_LOG


def changes_of_state(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of group_transitions without those that tell of a member that came or went."""
    return [row for row in rows if row["from_state"] != row["to_state"]]


ORDER = {"consumer_offsets": "offset", "group_responses": "seq", "group_transitions": "seq", "rejected_requests": "seq"}


@pytest.fixture(scope="session")
def coordinator_spark(spark: SparkSession) -> SparkSession:
    return spark


@dataclass(frozen=True)
class Scenario:
    """A recorded log, and what an undisturbed replay of it leaves in the tables."""

    settings: Settings
    partitions: int
    rows: list[dict[str, Any]]
    expected: dict[str, pa.Table]

    def make_log(self, path: Path, sizes: Sequence[int]) -> EmbeddedLog:
        """An embedded log with the rows in appends of the given sizes, over and over."""
        log = EmbeddedLog.create(path, self.partitions, clock_skew_max_ms=None)
        self.append(log, sizes)
        return log

    def append(self, log: EmbeddedLog, sizes: Sequence[int], start: int = 0, stop: int | None = None) -> None:
        rows = self.rows[start:stop]
        at = turn = 0
        while at < len(rows):
            size = sizes[turn % len(sizes)]
            log.append(rows[at : at + size])
            at, turn = at + size, turn + 1


def scenario(source: ReplaySource) -> Scenario:
    # In the order of time, as they came; Kafka's own log has several partitions.
    rows = sorted(source.rows, key=lambda row: row["log_ts"])
    expected = to_tables(Runs(source).outputs())
    return Scenario(source.settings, source.partitions, rows, expected)


@pytest.fixture(scope="session")
def sample() -> Scenario:
    """The shipped sample of a real broker's traffic, in two partitions."""
    return scenario(read_source(SAMPLE_LOG, LIVE, ReplayOptions(partitions=2)))


def read_tables(folder: Path) -> dict[str, pa.Table]:
    """The tables, each in its canonical order."""
    return {name: in_order(name, DeltaTable(str(folder / name)).to_pyarrow_table()) for name in TABLES}


def in_order(name: str, table: pa.Table) -> pa.Table:
    return table.sort_by([("source", "ascending"), ("partition", "ascending"), (ORDER[name], "ascending")])


def assert_same_tables(spark: SparkSession, folder: Path, expected: dict[str, pa.Table]) -> None:
    """Row for row; where they differ, chispa shows the rows."""
    from chispa import assert_df_equality

    found = read_tables(folder)
    for name in TABLES:
        left, right = found[name].to_pylist(), in_order(name, expected[name]).to_pylist()
        if left != right:
            assert_df_equality(
                spark.createDataFrame(left, TABLES[name]),
                spark.createDataFrame(right, TABLES[name]),
                ignore_nullable=True,
            )
            raise AssertionError(f"{name} differs")


def assert_whole_log(spark: SparkSession, path: Path, scenario: Scenario) -> None:
    """The log and its history hold each row of the scenario once, in order."""
    found = [row.asDict() for row in request_log(spark, path).orderBy("partition", "offset").collect()]
    expected = []
    for partition in range(scenario.partitions):
        rows = [row for row in scenario.rows if row["partition"] == partition]
        expected += [{"source": "live", **row, "offset": offset} for offset, row in enumerate(rows)]
    assert found == [{name: row[name] for name in REQUEST_COLUMNS} for row in expected]


Run = Callable[..., Coordinator]


@pytest.fixture
def run(coordinator_spark: SparkSession, tmp_path: Path) -> Run:
    """Runs a coordinator on what is in the log under `tmp_path`, to its end."""

    def drain(settings: Settings, answers: Rows | None = None, **options: Any) -> Coordinator:
        import threading

        chosen = StreamOptions(
            log=options.pop("log", str(tmp_path / "log")),
            tables=options.pop("tables", str(tmp_path / "tables")),
            checkpoint=options.pop("checkpoint", str(tmp_path / "checkpoint")),
            available_now=True,
            **options,
        )
        with Coordinator(coordinator_spark, chosen, CoordinatorConfig(settings), answers) as coordinator:
            coordinator.wait(threading.Event())
        return coordinator

    return drain
