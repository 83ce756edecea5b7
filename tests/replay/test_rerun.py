"""A recorded log on an embedded log: every row, in order; and the comparison of its answers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.in_process import Runs
from coordinator_udf.replay.tasks.rerun import compare_with_tables, put_on_log
from coordinator_udf.tables.rows import to_tables
from schemas.requests import REQUEST_COLUMNS
from tests.conftest import SAMPLE_LOG


@pytest.fixture(scope="module")
def sample() -> ReplaySource:
    return read_source(SAMPLE_LOG, "live", ReplayOptions(partitions=4))


def test_each_partition_has_its_rows_in_order(sample: ReplaySource, tmp_path: Path) -> None:
    log = put_on_log(sample, tmp_path / "log")
    read = pa.Table.from_batches(log.read(0, log.end())).to_pylist()
    log.close()

    def by_partition(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        return sorted(rows, key=lambda row: (row["partition"], row["offset"]))

    assert len(read) == len(sample.rows) > 400
    expected = [{**row, "source": "live"} for row in sample.rows]
    assert by_partition(read) == [{name: row[name] for name in REQUEST_COLUMNS} for row in by_partition(expected)]


def test_the_same_answers_are_counted_and_other_ones_shown(sample: ReplaySource, tmp_path: Path) -> None:
    responses = to_tables(Runs(sample).outputs())["group_responses"]
    write_deltalake(str(tmp_path / "group_responses"), responses)
    verdict = compare_with_tables(sample, tmp_path)
    compared = sum(verdict.identical.values())
    assert compared + sum(verdict.incomparable.values()) == len(sample.recording.answers)
    assert compared > 400
    assert not verdict.differences

    write_deltalake(str(tmp_path / "group_responses"), responses.slice(1), mode="overwrite")
    verdict = compare_with_tables(sample, tmp_path)
    assert [difference.ours for difference in verdict.differences] == [None]
