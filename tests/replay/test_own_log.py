"""The project's own request log as files in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.inputs.own_log import ordered_shards, read_shard_files, stage_embedded_log
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.rerun import put_on_log
from coordinator_udf.replay.tasks.shard_runner import shard_slices
from coordinator_udf.user_errors import InputError
from schemas.requests import request_log_arrow
from tests.conftest import SAMPLE_LOG


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    source = read_source(SAMPLE_LOG, "sample", ReplayOptions(partitions=3))
    return pa.Table.from_pylist([{**row, "source": "live"} for row in source.rows], request_log_arrow())


def of_partition(rows: pa.Table, partition: int) -> pa.Table:
    return rows.filter(pc.equal(rows.column("partition"), partition))


def read_back(path: Path) -> dict[int, list[int]]:
    shards = ordered_shards(path, "log")
    assert shards is not None
    read: dict[int, list[int]] = {}
    for shard in shards:
        for batch in read_shard_files(shard):
            assert batch.schema.equals(request_log_arrow())
            assert set(batch.column("source").to_pylist()) == {"log"}
            for row in batch.to_pylist():
                read.setdefault(row["partition"], []).append(row["offset"])
    return read


def expected(rows: pa.Table) -> dict[int, list[int]]:
    return {n: list(range(len(of_partition(rows, n)))) for n in range(3)}


@pytest.mark.parametrize("partition_by", [None, ["partition"]])
def test_a_table_with_files_of_one_partition_each_is_read_in_order(
    rows: pa.Table, partition_by: list[str] | None, tmp_path: Path
) -> None:
    for n in (2, 0, 1):
        part = of_partition(rows, n)
        half = len(part) // 2
        # The second half first, and each half upside down.
        for piece in (part.slice(half), part.slice(0, half)):
            turned = piece.sort_by([("offset", "descending")])
            write_deltalake(str(tmp_path / "log"), turned, mode="append", partition_by=partition_by)
    assert read_back(tmp_path / "log") == expected(rows)


def test_a_table_of_a_release_that_had_no_principals_is_read(rows: pa.Table, tmp_path: Path) -> None:
    for n in range(3):
        write_deltalake(str(tmp_path / "log"), of_partition(rows, n).drop_columns(["principal"]), mode="append")
    assert read_back(tmp_path / "log") == expected(rows)


def test_a_table_of_mixed_files_is_left_to_spark(rows: pa.Table, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "log"), rows)
    assert ordered_shards(tmp_path / "log", "log") is None


def test_files_that_overlap_are_left_to_spark(rows: pa.Table, tmp_path: Path) -> None:
    part = of_partition(rows, 0)
    for first in (0, 1):
        places = pa.array(range(first, len(part), 2))
        write_deltalake(str(tmp_path / "log"), part.take(places), mode="append")
    assert ordered_shards(tmp_path / "log", "log") is None


def test_a_table_that_is_no_request_log_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "log"), pa.table({"partition": [1]}))
    with pytest.raises(InputError, match="no request log: the table has no column source, offset"):
        ordered_shards(tmp_path / "log", "log")


def test_an_embedded_log_is_staged_by_partition(rows: pa.Table, tmp_path: Path) -> None:
    source = read_source(SAMPLE_LOG, "sample", ReplayOptions(partitions=3))
    put_on_log(source, tmp_path / "requests.log").close()
    read: dict[int, list[int]] = {}
    for shard in stage_embedded_log(tmp_path / "requests.log", "log", tmp_path / "staged"):
        for batch in read_shard_files(shard):
            for partition, offset in zip(*(batch.column(n).to_pylist() for n in ("partition", "offset")), strict=True):
                read.setdefault(partition, []).append(offset)
    assert read == expected(rows)


def test_batches_are_cut_where_the_shard_changes(rows: pa.Table) -> None:
    def batch(*shards: tuple[str, int]) -> pa.RecordBatch:
        columns: dict[str, Any] = {name: [None] * len(shards) for name in request_log_arrow().names}
        columns |= {"source": [s for s, _ in shards], "partition": [p for _, p in shards]}
        columns |= {"offset": [0] * len(shards), "log_ts": [0] * len(shards)}
        return pa.record_batch(list(columns.values()), schema=request_log_arrow())

    batches = [batch(("a", 0), ("a", 0), ("a", 1)), batch(), batch(("a", 1), ("b", 1))]
    cut = [(source, partition, len(rows)) for source, partition, rows in shard_slices(batches)]
    assert cut == [("a", 0, 2), ("a", 1, 1), ("a", 1, 1), ("b", 1, 1)]
