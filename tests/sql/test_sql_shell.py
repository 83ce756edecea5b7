"""The SQL shell: what is a statement, and that one that fails doesn't end it."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from coordinator_udf.sql.shell import Shell, statements
from tests.sql.conftest import Ask


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;\n\nSELECT\n2 ;\n", ["SELECT 1", "SELECT\n2"]),
        (";;\n;\nSELECT ';' AS x;", ["SELECT ';' AS x"]),
    ],
)
def test_statements(typed: str, expected: list[str]) -> None:
    assert list(statements(iter(typed.splitlines()))) == expected


@pytest.mark.spark
def test_a_statement_that_fails_is_told_and_the_next_one_runs(
    spark: SparkSession, ask: Callable[..., Ask], tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(group_transitions=[{"seq": 0, "ts": 0, "group_id": "g", "to_state": "Stable", "rule": "R", "members": []}])
    said: list[str] = []
    shell = Shell(spark, str(tmp_path), max_rows=5, vertical=False)
    shell.interact(io.StringIO("SELECT nonsense FROM groups;\nSELECT group_id, state FROM groups;"), said.append)
    assert any("nonsense" in line for line in said)
    assert "|g       |Stable|" in capsys.readouterr().out
