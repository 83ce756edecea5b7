"""Inputs and outputs at URIs: of S3, a server of which runs here, and of files."""

from __future__ import annotations

import gzip
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.fs import FileSelector

from coordinator_udf.tables.places import files_of
from coordinator_udf.tables.staging import local_path, staging
from coordinator_udf.user_errors import InputError
from schemas.simulation import VIOLATIONS_TABLE, violations_arrow
from schemas.tables import TABLES
from tests.conftest import ROOT, SAMPLE_LOG
from tests.s3_server import s3_server

EXCERPT = ROOT / "tests" / "data" / "consumer_offsets.jsonl.gz"

#: Sends two tables, and hears SIGTERM as soon as the first of them is committed.
TOLD_TO_STOP = """
import os, signal, sys
import pyarrow as pa
from deltalake import write_deltalake
from coordinator_udf import stopping
from coordinator_udf.tables import staging

def heard(*given):
    replace_content(*given)
    os.kill(os.getpid(), signal.SIGTERM)

def send():
    with staging.staging() as stage:
        folder = stage.target(sys.argv[1])
        for name in ("one", "two"):
            write_deltalake(str(folder / name), pa.table({"x": [1]}))
        stage.send()

replace_content, staging.replace_content = staging.replace_content, heard
stopping.run(send)
"""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3")) as bucket:
        yield bucket


def put(uri: str, data: bytes) -> str:
    folder, _, name = uri.rpartition("/")
    with files_of(folder).open_output_stream(name) as out:
        out.write(data)
    return uri


def got(uri: str) -> bytes:
    folder, _, name = uri.rpartition("/")
    with files_of(folder).open_input_stream(name) as file:
        data: bytes = file.read()
    return data


def rows_of(table: str, version: int | None = None) -> list[int]:
    return sorted(DeltaTable(table, version=version).to_pyarrow_table().column("x").to_pylist())


def all_files(uri: str, folder: str) -> list[str]:
    return sorted(info.path for info in files_of(uri).get_file_info(FileSelector(folder, recursive=True)))


def run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    asked = [sys.executable, "-m", f"coordinator_udf.commands.{command}", *arguments]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)


def muster(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("app", command, *arguments)


def test_what_is_at_a_uri_is_brought_here_and_taken_there(s3: str, tmp_path: Path) -> None:
    for name in ("a.log", "a.log.1", "b.txt", "deep/c.log"):
        put(f"{s3}/logs/{name}", name.encode() * 1_000)
    with staging() as stage:
        assert stage.fetch(f"{s3}/logs/a.log").read_bytes() == b"a.log" * 1_000
        fitting = stage.fetch(f"{s3}/logs/a.*")
        assert sorted(path.name for path in fitting.parent.glob(fitting.name)) == ["a.log", "a.log.1"]
        folder = stage.fetch(f"{s3}/logs/")
        assert folder == fitting.parent
        assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
            "a.log", "a.log.1", "b.txt", "c.log",
        ]  # fmt: skip
        for absent in (f"{s3}/nothing", f"{s3}/logs/z*", "s3a://no-such-bucket/x"):
            with pytest.raises(InputError, match=r"no input|can't be read"):
                stage.fetch(absent)
        for wrong in ("s3://", f"{s3}/../x", "nonsense://host/x"):
            with pytest.raises(InputError):
                stage.fetch(wrong)
        assert stage.fetch(tmp_path.as_uri()) == tmp_path
    assert not folder.exists()


def test_a_table_is_taken_there_whole_in_the_stead_of_another(s3: str) -> None:
    uri = f"{s3}/tables"
    for version, rows in enumerate(([1, 2], [3])):
        with staging() as stage:
            folder = stage.target(uri)
            for row in rows:
                write_deltalake(str(folder / "one"), pa.table({"x": [row]}), mode="append")
            stage.send()
        assert rows_of(f"{uri}/one") == rows
        assert DeltaTable(f"{uri}/one").version() == version
    assert rows_of(f"{uri}/one", 0) == [1, 2], "who reads the version before still can"


def test_what_is_beside_the_tables_is_left_alone(s3: str) -> None:
    uri = f"{s3}/incident"
    foreign = {put(f"{uri}/{name}", name.encode()) for name in ("server.log", "one/notes.txt", "old/part-0.parquet")}
    write_deltalake(f"{uri}/theirs", pa.table({"x": [7]}))
    write_deltalake(f"{uri}/{VIOLATIONS_TABLE}", pa.Table.from_pylist([{}], violations_arrow()))
    with staging() as stage:
        write_deltalake(str(stage.target(uri) / "one"), pa.table({"x": [1]}))
        stage.send()
    assert rows_of(f"{uri}/one") == [1]
    assert rows_of(f"{uri}/theirs") == [7]
    for name in foreign:
        assert got(name) == name.removeprefix(f"{uri}/").encode()
    assert DeltaTable(f"{uri}/{VIOLATIONS_TABLE}").count() == 0, "no earlier run's beside those of this one"


def test_what_cannot_be_taken_there_changes_nothing(s3: str) -> None:
    uri, page = f"{s3}/failed", put(f"{s3}/failed.md", b"before")
    for name in ("one", "two"):
        write_deltalake(f"{uri}/{name}", pa.table({"x": [1]}))
    before = all_files(s3, "failed")
    with staging() as stage:
        folder = stage.target(uri)
        for name in ("one", "two"):
            write_deltalake(str(folder / name), pa.table({"x": [2]}))
        next((folder / "two").glob("*.parquet")).unlink()
        stage.target(page).write_bytes(b"after")
        with pytest.raises(InputError, match="failed can't be written"):
            stage.send()
    with staging() as stage:
        write_deltalake(str(stage.target(uri) / "one"), pa.table({"x": [2]}))
        # It can be opened, but not be read.
        stage.target(page).symlink_to("/proc/self/mem")
        with pytest.raises(InputError, match=r"failed\.md can't be written"):
            stage.send()
    assert all_files(s3, "failed") == before
    assert got(page) == b"before"
    assert [rows_of(f"{uri}/{name}") for name in ("one", "two")] == [[1], [1]]


def test_all_tables_are_put_though_the_command_is_told_to_stop(s3: str) -> None:
    done = subprocess.run([sys.executable, "-c", TOLD_TO_STOP, f"{s3}/stopped"], cwd=ROOT, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert [rows_of(f"{s3}/stopped/{name}") for name in ("one", "two")] == [[1], [1]]


def test_a_file_uri_is_a_path() -> None:
    assert local_path("file:///tmp/a%20b/c") == Path("/tmp/a b/c")
    assert local_path("/tmp/x") == Path("/tmp/x")
    assert local_path("s3://bucket/x") is None


def test_offsets_are_imported_and_exported_by_uri(s3: str, tmp_path: Path) -> None:
    dump, tables, out = f"{s3}/dumps/offsets.jsonl.gz", f"{s3}/imported", f"{s3}/exported.jsonl.gz"
    put(dump, EXCERPT.read_bytes())
    done = run("offsets", "import", dump, "--tables", tables)
    assert done.returncode == 0, done.stderr
    assert "offsets.jsonl.gz" in done.stdout
    done = run("offsets", "export", "--tables", tables, "--out", out)
    assert done.returncode == 0, done.stderr
    assert gzip.decompress(got(out)) == gzip.decompress(EXCERPT.read_bytes())
    done = run("offsets", "export", "--tables", tables, "--out", out)
    assert done.returncode == 2
    assert "exists" in done.stderr
    done = run("offsets", "export", "--tables", tables, "--out", (tmp_path / "x.jsonl").as_uri())
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.jsonl").read_bytes() == gzip.decompress(EXCERPT.read_bytes())


def test_a_report_is_made_of_logs_and_tables_at_uris(s3: str, tmp_path: Path) -> None:
    log = put(f"{s3}/broker/server.log.gz", SAMPLE_LOG.read_bytes())
    done = muster("report", log, "-o", f"{s3}/incident.md", "--format", "md", "--keep", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stderr
    page = got(f"{s3}/incident.md").decode()
    shutil.copy(SAMPLE_LOG, tmp_path / "server.log.gz")
    done = muster("report", str(tmp_path / "server.log.gz"), "-o", str(tmp_path / "local.md"), "--format", "md")
    assert done.returncode == 0, done.stderr
    assert page == (tmp_path / "local.md").read_text()
    with staging() as stage:
        shutil.copytree(tmp_path / "kept", stage.target(f"{s3}/kept"))
        stage.send()
    done = muster("report", f"{s3}/kept", "-o", (tmp_path / "of-tables.md").as_uri(), "--format", "md")
    assert done.returncode == 0, done.stderr
    assert "rebalance" in (tmp_path / "of-tables.md").read_text()


@pytest.mark.spark
@pytest.mark.slow
def test_a_replay_reads_and_writes_at_uris(s3: str) -> None:
    log = put(f"{s3}/replayed/server.log.gz", SAMPLE_LOG.read_bytes())
    asked = (log, "--out", f"{s3}/replay", "--jsonl", f"{s3}/said/answers.jsonl", "--fail-on-difference")
    done = muster("replay", *asked)
    assert done.returncode == 0, done.stderr
    assert {name for name in TABLES if DeltaTable.is_deltatable(f"{s3}/replay/{name}")} == set(TABLES)
    answers = DeltaTable(f"{s3}/replay/group_responses").count()
    assert answers > 100
    assert got(f"{s3}/said/answers.jsonl").count(b"\n") >= answers
    done = muster("replay", *asked)
    assert done.returncode == 2
    assert "holds tables already" in done.stderr
