"""Tables and checkpoint on S3 and HDFS, servers of which run here: the whole job, its recovery, and who may write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.settings.coordinator import FIELDS
from coordinator_udf.streaming import lease
from coordinator_udf.streaming.lease import StartError, take_over
from coordinator_udf.tables.delta import OutputTables
from coordinator_udf.tables.epoch import FencedError
from coordinator_udf.tables.parquet_files import read_back
from coordinator_udf.tables.places import files_of
from schemas.tables import TABLES
from tests.conftest import ROOT
from tests.gateway.clients.built import built_jars
from tests.hdfs_server import hdfs_server
from tests.nightly import only_at_night
from tests.s3_server import BUCKET, s3_server
from tests.spark.conftest import Run, Scenario, in_order
from tests.spark.test_kills import _text
from tests.tables.test_epoch import batch, in_files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: What is the same there as on S3, but for how a file comes to be if there is none by its name.
_HDFS_AT_NIGHT = only_at_night("the same on S3")
#: Of a micro-batch: each writes its files there, and each start has several.
MAX_ROWS = 150


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3")) as bucket:
        yield bucket


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as root:
        yield root


@pytest.fixture(params=["s3", pytest.param("hdfs", marks=_HDFS_AT_NIGHT)])
def storage(request: pytest.FixtureRequest) -> str:
    """The URI of a storage."""
    uri: str = request.getfixturevalue(request.param)
    return uri


def test_commits_of_several_writers_and_epochs(storage: str) -> None:
    folder = f"{storage}/epochs"
    older, newer = OutputTables(folder), OutputTables(folder)
    older.claim()
    older.write(batch(0), "query", 0)
    newer.claim()
    with pytest.raises(FencedError):
        older.write(batch(1), "query", 1)
    newer.write(batch(1), "query", 1)
    # Files that tasks wrote there are committed in an epoch as rows are.
    with pytest.raises(FencedError):
        older.write(in_files(folder, 2), "query", 2)
    newer.write(in_files(folder, 2), "query", 2)
    assert {name: newer.table(name).count() for name in TABLES} == dict.fromkeys(TABLES, 3)
    found = [rows.num_rows for rows in read_back(folder, in_files(folder, 3)["group_responses"], 10)]
    assert found == [1]
    # An object is put, and a file renamed, only if there is none by that name: two commits never get the same number.
    uri = f"{storage}/several"
    write_deltalake(uri, pa.table({"x": [0]}))

    def append(first: int) -> None:
        table = DeltaTable(uri)
        for number in range(first, first + 5):
            write_deltalake(table, pa.table({"x": [number]}), mode="append")

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(append, (1, 6, 11)))
    assert sorted(DeltaTable(uri).to_pyarrow_table().column("x").to_pylist()) == list(range(16))
    assert DeltaTable(uri).version() == 15


def test_a_lease(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.1)
    folder, checkpoint = f"{storage}/lease", f"{storage}/checkpoint"
    refused = pytest.raises(StartError, match=f"another coordinator runs on the folder of tables {storage}")
    with take_over(OutputTables(folder), checkpoint), refused:
        take_over(OutputTables(folder), checkpoint)
    monkeypatch.setattr(lease, "SILENT_AFTER_S", 1.0)
    with take_over(OutputTables(folder), checkpoint) as mine:
        assert (mine.epoch, mine.before) == (2, None)
        mine._thread.stop()
        with take_over(OutputTables(folder), checkpoint) as newer:
            assert newer.before is not None
            with pytest.raises(FencedError):
                mine.raise_if_lost(look=True)
    holder = json.loads(files_of(folder).open_input_stream("_coordinator/lease.json").read())
    assert (holder["epoch"], holder["is_over"]) == (3, True)


@pytest.fixture(scope="module")
def spark_conf(s3: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    jars = ",".join(map(str, sorted(built_jars("hadoop-aws", ROOT / "tests" / "spark" / "s3").glob("*.jar"))))
    conf = tmp_path_factory.mktemp("conf") / "spark.conf"
    own = (ROOT / "conf" / "spark.conf").read_text()
    conf.write_text(
        f"{own}\nspark.jars {jars}\n"
        f"spark.hadoop.fs.s3a.endpoint {os.environ['AWS_ENDPOINT_URL']}\n"
        "spark.hadoop.fs.s3a.endpoint.region us-east-1\nspark.hadoop.fs.s3a.path.style.access true\n"
    )
    return conf


def coordinate(tmp_path: Path, conf: Path, storage: str, settings: list[str], *more: str) -> str:
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "jobs" / "coordinator_stream.py"), "--log", str(tmp_path / "log")),
            *("--tables", f"{storage}/tables", "--checkpoint", f"{storage}/checkpoint", "--spark-conf", str(conf)),
            *("--available-now", "--fold-after", "20", "--max-rows", str(MAX_ROWS), *settings, *more),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6_000:]
    return done.stderr


def test_a_coordinator_whose_tables_and_checkpoint_are_on_s3(
    tmp_path: Path, sample: Scenario, s3: str, spark_conf: Path
) -> None:
    storage = f"s3://{BUCKET}/live"
    settings = [f"--set={name}={_text(getattr(sample.settings, field.name))}" for name, field in FIELDS.items()]
    with closing(EmbeddedLog.create(tmp_path / "log", sample.partitions, clock_skew_max_ms=None)) as log:
        half = len(sample.rows) // 2
        sample.append(log, [30], stop=half)
        coordinate(tmp_path, spark_conf, storage, settings)
        sample.append(log, [30], start=half)
        coordinate(tmp_path, spark_conf, storage, settings, "--large-batch", str(MAX_ROWS))
        assert_all_there(log, storage, sample)


@_HDFS_AT_NIGHT
def test_a_coordinator_whose_tables_and_checkpoint_are_on_hdfs(
    tmp_path: Path, sample: Scenario, hdfs: str, run: Run
) -> None:
    places = {"tables": f"{hdfs}/live/tables", "checkpoint": f"{hdfs}/live/checkpoint"}
    with closing(EmbeddedLog.create(tmp_path / "log", sample.partitions, clock_skew_max_ms=None)) as log:
        half = len(sample.rows) // 2
        sample.append(log, [30], stop=half)
        run(sample.settings, **places, fold_after_rows=20, max_rows=MAX_ROWS)
        sample.append(log, [30], start=half)
        run(sample.settings, **places, fold_after_rows=20, max_rows=MAX_ROWS, large_batch_rows=MAX_ROWS)
        assert_all_there(log, f"{hdfs}/live", sample)


def assert_all_there(log: EmbeddedLog, storage: str, sample: Scenario) -> None:
    """The tables have all rows, what the checkpoint needs no more is folded, and the second coordinator has ended."""
    for name in TABLES:
        found = in_order(name, DeltaTable(f"{storage}/tables/{name}").to_pyarrow_table())
        assert found.to_pylist() == in_order(name, sample.expected[name]).to_pylist(), name
    assert log.extent().first > 0
    assert DeltaTable(f"{storage}/tables/request_log").count() > 20
    holder = json.loads(files_of(f"{storage}/tables").open_input_stream("_coordinator/lease.json").read())
    assert (holder["epoch"], holder["is_over"]) == (2, True)
