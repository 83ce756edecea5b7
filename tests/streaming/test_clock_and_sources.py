from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.settings.file import CoordinatorConfig
from coordinator_udf.streaming.packing import pack_requests, unpack_requests
from coordinator_udf.streaming.session import SparkConfError, read_spark_conf
from coordinator_udf.streaming.shard_keys import partition_of
from coordinator_udf.streaming.sources.clock import LAST, ClockReader, bound_by_ticks
from coordinator_udf.streaming.sources.requests import placed, read_lines, topics_body
from schemas.requests import REQUEST_COLUMNS, request_log_arrow
from tests.conftest import ROOT

EMPTY: dict[str, Any] = dict.fromkeys(REQUEST_COLUMNS) | {"source": "live", "partition": 0, "offset": 0, "log_ts": 0}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([EMPTY | row for row in rows], request_log_arrow())


def unpacked(rows: Any) -> list[dict[str, Any]]:
    return [row for _, value in rows for row in unpack_requests([value]).to_pylist()]


def test_packed_rows_come_back_by_partition_in_order_of_offset() -> None:
    given = table(*({"partition": i % 3, "offset": 10 - i, "api": f"a{i}"} for i in range(9)))
    packed = pa.Table.from_batches(pack_requests(given.to_batches())).to_pylist()
    assert [partition_of(row["shard"]) for row in packed] == [0, 1, 2]
    assert [row["api"] for row in unpack_requests([packed[1]["requests"]]).to_pylist()] == ["a7", "a4", "a1"]


def test_each_micro_batch_has_a_tick_and_it_is_the_same_when_read_again() -> None:
    reader = ClockReader(partitions=2, lag_ms=5_000, topics="")
    before_ms = time.time_ns() // 1_000_000
    rows, end = reader.read(reader.initialOffset())
    after_ms = time.time_ns() // 1_000_000
    ticks = unpacked(rows)
    assert [(row["partition"], row["api"], row["offset"]) for row in ticks] == [(0, "Tick", LAST), (1, "Tick", LAST)]
    assert before_ms - 5_000 <= ticks[0]["log_ts"] <= after_ms - 5_000
    assert unpacked(reader.readBetweenOffsets(reader.initialOffset(), end)) == ticks
    rows, later = reader.read(end)
    assert later["ms"] > end["ms"]
    assert [row["log_ts"] for row in unpacked(rows)] == [later["ms"]] * 2


#: Makes both readers as Spark does, in a process of its own, and lives until its standard input is closed.
PLANNER = """
import sys
from coordinator_udf.streaming.packing import PACKED_REQUESTS
from coordinator_udf.streaming.sources.clock import ClockSource
from coordinator_udf.streaming.sources.embedded import EmbeddedLogSource

source = {"clock": ClockSource({"partitions": "1", "lagMs": "0"}), "log": EmbeddedLogSource({"path": "none"})}
source[sys.argv[1]].simpleStreamReader(PACKED_REQUESTS)
print("planning", flush=True)
sys.exit(0 if sys.stdin.read() == "" else 1)
"""


@pytest.mark.parametrize("source", ["clock", "log"])
def test_what_plans_micro_batches_lives_until_spark_closes_its_pipe(source: str) -> None:
    # Under spark-submit it hears of what the process group is told; the driver ends the query, and so this process.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHON_WORKER_FACTORY_SECRET": "secret"}
    with subprocess.Popen(
        [sys.executable, "-c", PLANNER, source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as planner:
        assert planner.stdin is not None
        assert planner.stdout is not None
        assert planner.stdout.readline() == b"planning\n"
        for number in (signal.SIGTERM, signal.SIGINT):
            planner.send_signal(number)
        planner.stdin.close()
        assert planner.wait() == 0


def test_a_clock_that_was_set_back_does_not_take_time_back() -> None:
    reader = ClockReader(partitions=1, lag_ms=0, topics="")
    ahead: dict[str, Any] = {"ms": time.time_ns() // 1_000_000 + 3_600_000, "topics": ""}
    rows, end = reader.read(ahead)
    assert [row["log_ts"] for row in unpacked(rows)] == [end["ms"]] == [ahead["ms"] + 1]


def test_topics_are_told_when_they_change_and_before_the_requests() -> None:
    topics = topics_body(CoordinatorConfig(Settings(), (Topic("t", 3, "id"),)))
    reader = ClockReader(partitions=1, lag_ms=0, topics=topics)
    rows, end = reader.read(reader.initialOffset())
    told = unpacked(rows)
    assert [row["api"] for row in told] == ["TopicMetadata", "Tick"]
    assert json.loads(told[0]["body"]) == {"topics": [{"name": "t", "partitions": 3, "id": "id"}]}
    assert told[0]["offset"] < 0
    assert [row["api"] for row in unpacked(reader.readBetweenOffsets(end, {**end, "ms": end["ms"] + 1}))] == ["Tick"]


def test_requests_of_clocks_that_run_ahead_are_bounded_by_the_tick() -> None:
    settings = Settings.from_kafka({"log.clock.skew.max.ms": 100})
    rows = table(
        {"offset": 1, "log_ts": 1_100, "api": "Heartbeat"},
        {"offset": 2, "log_ts": 9_999_999, "api": "Heartbeat"},
        {"offset": 3, "log_ts": None, "api": "Heartbeat"},
        {"offset": LAST, "log_ts": 1_000, "api": "Tick"},
    )
    assert bound_by_ticks(rows, settings).column("log_ts").to_pylist() == [1_100, 1_200, None, 1_000]
    assert bound_by_ticks(rows.slice(0, 3), settings).column("log_ts").to_pylist() == [1_100, 9_999_999, None]


def test_lines_that_are_no_rows_say_so() -> None:
    good = {"partition": 1, "offset": 5, "log_ts": 7, "api": "Heartbeat", "group_id": "g", "request_id": "r"}
    lines = [json.dumps(good), "{not json", '{"partition": "one"}', "[]"]
    # What no column can hold must not take the lines beside it along.
    lines += [json.dumps(good | {"api_version": 2**31}), json.dumps(good | {"log_ts": 2**63})]
    rows = pa.Table.from_batches(read_lines(iter([pa.record_batch({"value": lines})]))).to_pylist()
    assert {name: rows[0][name] for name in good} == good
    assert rows[0]["source"] == "live"
    assert [row["body"] for row in rows[1:]] == lines[1:]
    assert "can't be read (JSON is malformed" in rows[1]["api"]
    assert "Expected `int`, got `str` - at `$.partition`" in rows[2]["api"]
    assert "Expected `int` <= 2147483647 - at `$.api_version`" in rows[4]["api"]
    assert "at `$.log_ts`" in rows[5]["api"]


def test_rows_of_partitions_that_are_not_there_go_where_they_are_rejected() -> None:
    rows = table({"partition": 2, "api": "Heartbeat"}, {"partition": 1, "api": "JoinGroup"}, {"partition": -1})
    found = placed(rows.to_batches()[0], 2).to_pylist()
    assert [row["partition"] for row in found] == [0, 1, 0]
    assert found[0]["api"] == "Heartbeat of partition 2, where the log has 0 to 1"
    assert found[1]["api"] == "JoinGroup"


def test_spark_settings_are_read_and_a_setting_without_a_value_is_named(tmp_path: Path) -> None:
    path = tmp_path / "spark.conf"
    path.write_text("# comment\n\nspark.a   b c\nspark.d\te\n")
    assert read_spark_conf(path) == {"spark.a": "b c", "spark.d": "e"}
    path.write_text("spark.a 1\nspark.b\n")
    with pytest.raises(SparkConfError, match="expected a setting's name and its value"):
        read_spark_conf(path)
    with pytest.raises(SparkConfError, match="can't be read"):
        read_spark_conf(tmp_path / "none")
