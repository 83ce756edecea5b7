"""The SQL shell: what is a statement, and that one that fails doesn't end it."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from coordinator_udf.sql.results import OutputFormat, Results
from coordinator_udf.sql.shell import Shell, statements
from tests.sql.conftest import Ask


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;\n\nSELECT\n2 ;\n", ["SELECT 1", "SELECT\n2"]),
        (";;\n;\nSELECT ';' AS x;", ["SELECT ';' AS x"]),
        ("SELECT 1; SELECT 2;\nexit\n", ["SELECT 1", "SELECT 2", "exit"]),
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
    shell = Shell(spark, str(tmp_path), Results())
    shell.interact(io.StringIO("SELECT nonsense FROM groups;\nSELECT group_id, state FROM groups;"), said.append)
    assert any("nonsense" in line for line in said)
    assert "|g       |Stable|" in capsys.readouterr().out
    told = next(line for line in said if "nonsense" in line)
    assert "\n" not in told
    assert "SQLSTATE" not in told


@pytest.mark.spark
def test_a_typo_names_the_column_that_was_meant_and_other_formats_are_written(
    spark: SparkSession, ask: Callable[..., Ask], tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(group_transitions=[{"seq": 0, "ts": 0, "group_id": "g", "to_state": "Stable", "rule": "R", "members": []}])
    said: list[str] = []
    shell = Shell(spark, str(tmp_path), Results(OutputFormat.CSV))
    assert not shell.interact(io.StringIO("SELECT group_ids FROM groups; exit; SELECT 1;"), said.append)
    assert "`group_id`" in said[0]
    shell.run_all("SELECT group_id, array(1, 2) AS a FROM groups; SELECT 2 AS b; exit; SELECT 3 AS c")
    assert capsys.readouterr().out.split() == ["group_id,a", 'g,"[1,', '2]"', "b", "2"]


@pytest.mark.spark
def test_results_are_whole_or_said_to_be_cut(
    spark: SparkSession, ask: Callable[..., Ask], tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(group_transitions=[{"seq": 0, "ts": 0, "group_id": "g", "to_state": "Stable", "rule": "R", "members": []}])
    for form, header in ((OutputFormat.CSV, 1), (OutputFormat.JSON, 0)):
        Shell(spark, str(tmp_path), Results(form)).run("SELECT explode(sequence(1, 1234)) AS n FROM groups")
        printed = capsys.readouterr()
        assert (len(printed.out.splitlines()), printed.err) == (1234 + header, "")
    for form in OutputFormat:
        Shell(spark, str(tmp_path), Results(form, 3)).run("SELECT explode(sequence(1, 4)) AS n FROM groups")
        printed = capsys.readouterr()
        assert printed.err == "sql: there are more rows than the 3 that are shown; --rows sets how many\n"
        assert "3" in printed.out
        assert "4" not in printed.out
        assert "only showing" not in printed.out
        Shell(spark, str(tmp_path), Results(form, 4)).run("SELECT explode(sequence(1, 4)) AS n FROM groups")
        assert capsys.readouterr().err == ""
    for form in OutputFormat:
        said: list[str] = []
        failing = io.StringIO("SELECT raise_error('too far') AS a FROM groups; SELECT 2 AS b")
        assert not Shell(spark, str(tmp_path), Results(form)).interact(failing, said.append)
        assert "too far" in said[0]
        assert "b" in capsys.readouterr().out
