"""Files to tables and back: the command line, on a real broker's records."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from coordinator_udf.offsets_topic import import_export
from coordinator_udf.offsets_topic.cli import app
from coordinator_udf.offsets_topic.lines import Line, line_to_row, read_line, row_to_line
from coordinator_udf.offsets_topic.records import Record, encode, is_marker
from schemas.tables import table_arrow
from tests.conftest import ROOT, shared
from tests.offsets_topic.strategies import markers, records

EXCERPT = ROOT / "tests" / "data" / "consumer_offsets.jsonl.gz"


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def text_of(file: Path) -> str:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return lines.read()


@given(
    record=records() | markers(), noise=st.binary(max_size=3), txn=st.booleans(), place=st.none() | st.integers(0, 99)
)
def test_every_line_comes_back(record: Record, noise: bytes, txn: bool, place: int | None) -> None:
    key, value = encode(record)
    marker = is_marker(record)
    line = Line(
        partition=2,
        offset=100,
        timestamp=1,
        # Bytes after the record's end are read over by Kafka, and are kept here.
        key=base64.b64encode(key + noise).decode(),
        value=None if value is None else base64.b64encode(value + noise).decode(),
        batchBase=place,
        leaderEpoch=place,
        txn=txn,
        producerId=record.key["producerId"] if marker else -1,
        producerEpoch=record.key["producerEpoch"] if marker else -1,
        control=("COMMIT" if (record.value or {})["committed"] else "ABORT") if marker else None,
        keyType=int.from_bytes(key[:2], "big"),
    )
    table = pa.Table.from_pylist([line_to_row(line, "s")], schema=table_arrow("consumer_offsets"))
    assert read_line(row_to_line(table.to_pylist()[0])) == line


def test_the_excerpt_comes_back_byte_for_byte(tmp_path: Path) -> None:
    _there_and_back(EXCERPT, tmp_path, 3244)


@pytest.mark.slow
def test_a_whole_topic_comes_back_byte_for_byte(tmp_path: Path) -> None:
    _there_and_back(shared("broker", "logs-dev", "consumer_offsets.jsonl.gz"), tmp_path, 29767)


def _there_and_back(dump: Path, tmp_path: Path, records_in_it: int) -> None:
    tables, out = tmp_path / "tables", tmp_path / "out.jsonl.gz"
    imported = run("import", dump, "--tables", tables)
    assert imported.exit_code == 0, imported.output
    assert f"imported {records_in_it} records as source '{dump.name}'" in imported.output
    assert "0 needed their bytes kept beside the columns" in imported.output
    exported = run("export", "--tables", tables, "--out", out)
    assert exported.exit_code == 0, exported.output
    assert text_of(out) == text_of(dump)


def test_lines_that_are_no_record_are_kept_and_exported_in_their_places(tmp_path: Path) -> None:
    good = text_of(EXCERPT).splitlines()[:3]
    unknown_type = '{"partition":0,"offset":1000,"timestamp":5,"key":"AAkAAWc=","value":null}'
    unknown_version = '{"partition":0,"offset":1001,"timestamp":5,"key":"AAEAAWcAAXQAAAAD","value":"AAkAAA=="}'
    lines = [unknown_type, "no json", *good, unknown_version, good[0], '{"partition":0,"offset":1002}']
    file, tables, out = tmp_path / "dump.jsonl", tmp_path / "tables", tmp_path / "out.jsonl"
    file.write_text("\n".join(lines) + "\n")
    imported = run("import", file, "--tables", tables, "--source", "mine")
    assert imported.exit_code == 0, imported.output
    assert "5 lines went to rejected_requests" in imported.output
    assert "line 1: record type (the key's version) is 9, expected one of 0, 1" in imported.output
    assert "line 6: value version of OffsetCommit is 9, Kafka 4.3.1 reads 0 to 4" in imported.output
    assert f"line 7: partition 0 has a second record at offset {json.loads(good[0])['offset']}" in imported.output
    assert (
        "line 8: the line is no record of __consumer_offsets: Object missing required field `timestamp`"
        in imported.output
    )
    assert run("export", "--tables", tables, "--source", "mine", "--out", out).exit_code == 0
    exported = out.read_text().splitlines()
    assert Counter(exported) == Counter(lines)
    assert exported == [good[0], good[0], good[1], good[2], unknown_type, unknown_version, "no json", lines[-1]]


def test_an_import_that_was_killed_in_the_middle_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it rejected is in the tables then, and none of its records."""
    file = tmp_path / "it's.jsonl"
    file.write_text("no json\n" + gzip.decompress(EXCERPT.read_bytes()).decode())
    append = import_export._append

    def killed(table: str, rows: pa.Table) -> None:
        if table.endswith("consumer_offsets"):
            raise KeyboardInterrupt
        append(table, rows)

    with monkeypatch.context() as patched:
        patched.setattr(import_export, "_append", killed)
        with pytest.raises(KeyboardInterrupt):
            import_export.import_file(file, str(tmp_path), "it's")
    import_export.import_file(file, str(tmp_path), "it's")
    rejected = DeltaTable(str(tmp_path / "rejected_requests")).to_pyarrow_table()
    assert rejected.column("raw").to_pylist() == ["no json"]
    assert DeltaTable(str(tmp_path / "consumer_offsets")).to_pyarrow_table().num_rows > 0
    assert run("import", file, "--tables", tmp_path, "--source", "it's").exit_code == 2


def test_a_source_is_imported_once(tmp_path: Path) -> None:
    assert run("import", EXCERPT, "--tables", tmp_path, "--source", "a").exit_code == 0
    again = run("import", EXCERPT, "--tables", tmp_path, "--source", "a")
    assert again.exit_code == 2
    assert "has rows of source 'a' already. Choose another name with --source" in again.output
    assert run("import", EXCERPT, "--tables", tmp_path, "--source", "b").exit_code == 0
    which = run("export", "--tables", tmp_path)
    assert which.exit_code == 2
    assert "has the sources: a, b. Name one with --source" in which.output
    assert run("export", "--tables", tmp_path, "--source", "b").stdout == text_of(EXCERPT)


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    assert "holds no records" in run("export", "--tables", tmp_path).output
    assert "has no records of source 'x'" in run("export", "--tables", tmp_path, "--source", "x").output
    assert "can't be read" in run("import", tmp_path / "absent.jsonl", "--tables", tmp_path).output
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(EXCERPT.read_bytes()[:1000])
    told = run("import", broken, "--tables", tmp_path)
    assert told.exit_code == 2
    assert "can't be read" in told.output
    run("import", EXCERPT, "--tables", tmp_path)
    there = tmp_path / "there"
    there.write_text("mine")
    told = run("export", "--tables", tmp_path, "--out", there)
    assert told.exit_code == 2
    assert "exists. Name another file" in told.output
    assert there.read_text() == "mine"
