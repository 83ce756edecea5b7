"""Words of ``muster sql`` that don't go together are refused in a line, and nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from coordinator_udf.commands.sql import main

APP = typer.Typer()
APP.command()(main)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["SELECT 2", "--file", "q.sql"], "--file doesn't go with STATEMENTS"),
        (["SELECT 2", "--serve", "127.0.0.1:15002"], "--serve doesn't go with STATEMENTS"),
        (["--file", "q.sql", "--serve", "127.0.0.1:15002"], "--serve doesn't go with --file"),
        (["--format", "csv", "--serve", "127.0.0.1:15002"], "--serve doesn't go with --format"),
        (["--serve", "127.0.0.1:15002", "--ddl", "main.groups"], "--serve doesn't go with"),
        (["--serve", "15002"], "expected HOST:PORT"),
        (["SELECT 2", "--ddl"], "--ddl is followed by 'SELECT 2', expected CATALOG.SCHEMA"),
        (["--ddl", "data/replay"], "--ddl is followed by 'data/replay', expected CATALOG.SCHEMA"),
        (["--ddl", "main.groups", "--file", "q.sql"], "--ddl doesn't go with --file"),
        (["--ddl", "--rows", "3"], "--ddl doesn't go with --rows"),
        (["SELECT 2", "--spark-conf", "some.conf"], "--spark-conf is for --install"),
        (["SELECT 2", "--kafka-config", "kafka.toml"], "--kafka-config is for a --log"),
        (["SELECT 2", "--log", "requests.log"], "--log is requests.log, expected kafka://"),
        (["SELECT 2", "--vertical", "--format", "csv"], "--vertical is for --format table"),
    ],
)
def test_words_that_make_no_sense_are_refused(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("q.sql", "some.conf", "kafka.toml"):
        (tmp_path / name).write_text("")
    ran = CliRunner().invoke(APP, words)
    assert ran.exit_code == 2, ran.output
    assert ran.stdout == ""
    assert ran.stderr.startswith("sql: ")
    assert ran.stderr.count("\n") == 1
    assert told in ran.stderr
