"""A Delta table and JSON lines as the log: the same tables, the job's own clock, and rows that are none."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.settings.file import CoordinatorConfig
from coordinator_udf.streaming.coordinator import Coordinator
from coordinator_udf.streaming.options import StreamOptions
from coordinator_udf.streaming.sources.requests import SourceError
from schemas.requests import LIVE, request_log_arrow
from tests.shard.edge import rows_of
from tests.spark.conftest import Run, Scenario, assert_same_tables, changes_of_state, read_tables
from tests.waiting import wait

pytestmark = pytest.mark.spark


def numbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the source and the dense offsets that an embedded log would have given them."""
    offsets: Counter[int] = Counter()
    complete = []
    for row in rows:
        complete.append({**row, "source": LIVE, "offset": offsets[row["partition"]]})
        offsets[row["partition"]] += 1
    return complete


def write_lines(folder: Path, name: str, lines: list[str]) -> None:
    draft = folder / f".{name}"
    draft.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    draft.rename(folder / name)


def test_a_delta_table_as_the_log(coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario, run: Run) -> None:
    rows = numbered(sample.rows)
    for start in range(0, len(rows), 300):
        part = pa.Table.from_pylist(rows[start : start + 300], request_log_arrow())
        write_deltalake(tmp_path / "requests", part, mode="append")
        # A table doesn't say how much a batch takes; the shards do: the first is a large one.
        places: dict[str, Any] = {"source": "delta", "log": str(tmp_path / "requests")}
        run(sample.settings, **places, partitions=sample.partitions, large_batch_rows=200)
    assert_same_tables(coordinator_spark, tmp_path / "tables", sample.expected)


def test_json_lines_as_the_log_and_bad_lines_are_rejected(
    coordinator_spark: SparkSession, tmp_path: Path, sample: Scenario, run: Run
) -> None:
    folder = tmp_path / "requests"
    folder.mkdir()
    lines = [json.dumps(row) for row in numbered(sample.rows)]
    write_lines(folder, "a.jsonl", lines[:200])
    write_lines(folder, "b.jsonl", [*lines[200:], "{broken", '{"partition": 9, "offset": 0, "log_ts": 0, "api": "X"}'])
    run(sample.settings, source="json", log=str(folder), partitions=sample.partitions, large_batch_rows=1)
    tables = read_tables(tmp_path / "tables")
    rejected = tables["rejected_requests"].to_pylist()
    strange = [row for row in rejected if "can't be read" in row["reason"] or "of partition 9" in row["reason"]]
    assert len(strange) == 2
    assert sum("{broken" in row["raw"] for row in strange) == 1
    # The rows that are rejected take numbers, so these are left out.
    for name in ("consumer_offsets", "group_responses", "group_transitions"):
        assert without_seq(tables[name]) == without_seq(sample.expected[name])


def without_seq(table: pa.Table) -> list[str]:
    return sorted(repr({**row, "seq": None}) for row in table.to_pylist())


def test_the_job_keeps_the_clock_of_a_log_without_ticks(coordinator_spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "requests"
    folder.mkdir()
    settings = Settings.from_kafka(
        {"group.initial.rebalance.delay.ms": 300, "group.min.session.timeout.ms": 100, "log.clock.skew.max.ms": 200}
    )
    options = StreamOptions(
        str(folder), str(tmp_path / "tables"), str(tmp_path / "checkpoint"), source="json", partitions=2, tick_ms=1_000
    )
    body = {"groupId": "g", "sessionTimeoutMs": 1000, "rebalanceTimeoutMs": 1000, "memberId": "", "protocolType": "x"}
    body |= {"protocols": [{"name": "p", "metadata": "AA=="}]}

    def states() -> list[dict[str, Any]]:
        return changes_of_state(read_tables(tmp_path / "tables")["group_transitions"].to_pylist())

    def ask(number: int, api: str, body: dict[str, Any]) -> None:
        """A request stamped by a clock that is a day ahead."""
        rows = rows_of(api, 3, body, now_ms + 86_400_000, f"r{number}", partitions=2)
        write_lines(folder, f"{number}.jsonl", [json.dumps({**row, "source": LIVE, "offset": number}) for row in rows])

    with Coordinator(coordinator_spark, options, CoordinatorConfig(settings)) as coordinator:
        wait(lambda: coordinator.sink.totals.sink_ms, "the first micro-batch is done")
        now_ms = time.time_ns() // 1_000_000
        ask(0, "JoinGroup", body)
        for number in range(1, 15):
            time.sleep(0.2)
            ask(number, "Heartbeat", {"groupId": "g", "generationId": 1, "memberId": "stranger"})
        wait(
            lambda: coordinator.sink.totals.answers >= 15 and len(states()) >= 5,
            "all is decided",
            lambda: f"{states()}",
            every_s=0.2,
        )
    assert [row["to_state"] for row in states()][-1] == "Empty"
    assert states()[2]["ts"] - states()[1]["ts"] == 300, "its timers fire though no request comes"
    answers = read_tables(tmp_path / "tables")["group_responses"].column("ts").to_pylist()
    ended_ms = time.time_ns() // 1_000_000
    assert max(answers) <= ended_ms + settings.log_clock_skew_max_ms, "a clock that is ahead moves time by that at most"
    planned = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    # After the version and the metadata come the sources, in the order in which Spark asked them.
    ticks = [json.loads(path.read_text().splitlines()[2])["ms"] for path in planned]
    assert ticks == sorted(set(ticks)), "a micro-batch without a tick has nothing to bound its requests by"


def test_sources_that_are_not_there_are_named(tmp_path: Path, run: Run) -> None:
    with pytest.raises(SourceError, match="there is no Delta table at"):
        run(Settings(), source="delta", log=str(tmp_path / "none"))
    with pytest.raises(SourceError, match="there is no directory"):
        run(Settings(), source="json", log=str(tmp_path / "none"))
    write_deltalake(tmp_path / "other", pa.table({"a": [1]}))
    with pytest.raises(SourceError, match="has no column source, partition"):
        run(Settings(), source="delta", log=str(tmp_path / "other"))
