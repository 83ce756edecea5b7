"""The SQL shell where it needs no Spark."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.local_shell import LocalShell
from coordinator_udf.sql.results import OutputFormat, Results, text_of
from coordinator_udf.sql.shapes import log_beside
from coordinator_udf.sql.typos import BadStatement
from schemas.simulation import violations_arrow
from schemas.views import INCIDENT_VIEWS
from tests.conftest import SAMPLE_LOG
from tests.sql.conftest import write_table


class SparkWasStarted(Exception):
    pass


def start_spark() -> SparkSession:
    raise SparkWasStarted


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tables")
    replay(None, ReplayRequest((SAMPLE_LOG,), out, ReplayOptions(), overwrite=True), print)
    return out


def shell(tables: Path, form: OutputFormat = OutputFormat.TABLE, max_rows: int | None = None) -> LocalShell:
    return LocalShell(str(tables), None, start_spark, Results(form, max_rows))


def test_several_statements_end_with_exit(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell(tables).run_all(
        "SELECT count(*) FROM rebalances; SELECT max(generation) FROM rebalances; exit; SELECT nothing"
    )
    printed = capsys.readouterr().out
    assert "|count(1)|" in printed
    assert "|max(generation)|" in printed


def test_every_view_and_table_can_be_asked(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("groups", "members", "assignments", "offsets", "waited_for", "gaps", "request_log", "coordinator_log"):
        shell(tables, OutputFormat.CSV).run(f"SELECT * FROM {name}")
        assert capsys.readouterr().out.startswith("source,"), name


def test_the_tables_that_there_are_and_the_views_are_shown(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell(tables, OutputFormat.CSV).run_all("show tables; SHOW  VIEWS")
    printed = capsys.readouterr().out.splitlines()
    views = printed.index("namespace,viewName,isTemporary")
    assert {",request_log,True", ",rebalances,True"} <= set(printed[1:views])
    assert ",violations,True" not in printed
    assert ",rebalances,True" in printed[views:]
    assert ",request_log,True" not in printed[views:]


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE request_log",
        "DROP VIEW IF EXISTS rebalances",
        "DELETE FROM request_log WHERE source = 'x'",
        "UPDATE Request_Log SET source = 'x'",
        "INSERT INTO request_log SELECT * FROM request_log",
        "TRUNCATE TABLE request_log",
        "ALTER TABLE request_log ADD COLUMN x INT",
        "MERGE INTO request_log USING gaps ON true WHEN MATCHED THEN DELETE",
    ],
)
def test_nothing_changes_what_was_written(tables: Path, statement: str) -> None:
    with pytest.raises(BadStatement, match="is a view of what was written, and nothing changes it here"):
        shell(tables).run(statement)


def test_a_table_by_its_path_is_changed_by_spark(tables: Path) -> None:
    with pytest.raises(SparkWasStarted):
        shell(tables).run(f"DELETE FROM delta.`{tables}/request_log` WHERE source = 'x'")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT genration FROM rebalances", "there is no column genration in rebalances; did you mean generation?"),
        ("SELECT generaton FROM rebalances", "there is no column generaton in rebalances; did you mean generation?"),
        ("SELECT r.grup_id FROM rebalances r", "there is no column grup_id in rebalances; did you mean group_id?"),
        ("SELECT r.grup_id FROM rebalances r JOIN gaps g", "no column grup_id in rebalances; did you mean group_id?"),
        ("SELECT Lag FROM Rebalances r, waited_for w", "no column Lag in rebalances, waited_for; did you mean lag_ms?"),
        ("SELECT number AS nth FROM gaps JOIN rebalances USING (source) ORDER BY nnth", "did you mean nth?"),
        ("SELECT colour FROM gaps", "no column colour in gaps; DESCRIBE gaps tells which there are"),
        ("SELECT x.number FROM rebalances r", 'Referenced table "x" not found! Candidate tables: "r"'),
        ("WITH t AS (SELECT 1 AS one) SELECT t.two FROM t", '"t" does not have a column named "two"'),
        ("SELECT * FROM rebalancs", "there is no table or view rebalancs; did you mean rebalances"),
        ("DESCRIBE rebalanses", "there is no table or view rebalanses; did you mean rebalances?"),
        ("DESC EXTENDED xyz", "there is no table or view xyz"),
    ],
)
def test_a_typo_is_told_in_a_line_with_what_was_meant(tables: Path, statement: str, told: str) -> None:
    with pytest.raises(BadStatement) as caught:
        shell(tables).run(statement)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_only_spark_can_goes_to_spark(tables: Path) -> None:
    for statement in ("CREATE TEMPORARY VIEW v AS SELECT 1", "DESCRIBE FUNCTION abs", "DESCRIBE delta.`/x`",
                      "DESCRIBE HISTORY groups", "SELECT spark_partition_id() FROM groups",
                      "SELECT date_format(since, 'QQQ') FROM groups",
                      "SELECT last(since, true) FROM groups",
                      "SELECT date_format(since, \"'at' HH\") FROM groups"):  # fmt: skip
        with pytest.raises(SparkWasStarted):
            shell(tables).run(statement)


def test_fractions_of_a_second_are_written(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell(tables, OutputFormat.CSV).run(
        "SELECT date_format(at, 'HH:mm:ss.SSS') AS ms, date_format(at, 'ss.SSSSSS') AS us FROM expulsions "
        "ORDER BY at LIMIT 1"
    )
    assert capsys.readouterr().out.split() == ["ms,us", "02:43:50.563,50.563000"]


def test_json_has_a_line_a_row(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell(tables, OutputFormat.JSON, max_rows=2).run("SELECT group_id, started, members_after, stable FROM rebalances")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 2
    assert rows[0]["started"].endswith("Z")
    assert isinstance(rows[0]["members_after"], list)


def answered(tables: Path, form: OutputFormat, statement: str, capsys: pytest.CaptureFixture[str]) -> str:
    shell(tables, form).run(statement)
    return capsys.readouterr().out


def test_json_and_csv_have_bytes_and_numbers_as_spark_writes_them(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    infinite = "cast('NaN' AS double) AS n, cast('-Infinity' AS double) AS i"
    statement = f"SELECT unhex('0001ff') AS b, 1.5 AS x, {infinite}, true AS t, array(unhex('00')) AS l LIMIT 1"
    told = answered(tables, OutputFormat.JSON, statement, capsys)
    assert json.loads(told) == {"b": "AAH/", "x": 1.5, "n": "NaN", "i": "-Infinity", "t": True, "l": ["AA=="]}
    told = answered(tables, OutputFormat.CSV, statement, capsys)
    assert told.splitlines()[1] == 'AAH/,1.5,nan,-inf,True,"[""AA==""]"'


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("percentile(x, 0.5) FROM VALUES (1), (2) AS t(x)", "1.5"),
        ("percentile_approx(x, 0.5) FROM VALUES (1), (2) AS t(x)", "1"),
        ("count(*) FROM VALUES ('my_group'), ('my2group') AS t(x) WHERE x LIKE 'my\\\\_group'", "1"),
        ("count(*) FROM VALUES ('my_group'), ('my2group') AS t(x) WHERE x LIKE 'my_group'", "2"),
        ("cast(7 AS bigint)", "7"),
    ],
)
def test_what_duckdb_has_otherwise_is_answered_as_by_spark(
    tables: Path, asked: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(tables, OutputFormat.CSV, f"SELECT {asked}", capsys).splitlines()[1] == told


@pytest.mark.parametrize(
    "asked",
    [
        "cast(2700/1000 AS int)",
        "int(2.7)",
        "cast(started AS bigint) FROM rebalances",
        "dayofweek(started) FROM rebalances",
        "weekday(started) FROM rebalances",
        "extract(DAYOFWEEK FROM started) FROM rebalances",
    ],
)
def test_what_cant_be_rewritten_is_left_to_spark(tables: Path, asked: str) -> None:
    with pytest.raises(SparkWasStarted):
        shell(tables).run(f"SELECT {asked}")


@pytest.mark.parametrize("name", ["my run", "größe", "100%", "a#b", "what?", "{x}"])
def test_a_folder_may_have_any_letters(
    tmp_path: Path, tables: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / name
    shutil.copytree(tables, folder)
    assert answered(folder, OutputFormat.CSV, "SELECT count(*) AS n FROM rebalances", capsys).split() == ["n", "9"]


LONG = "SELECT a.number * 100 + b.number AS n FROM rebalances a, rebalances b, rebalances c, rebalances d ORDER BY n"


@pytest.mark.parametrize(("form", "header"), [(OutputFormat.CSV, 1), (OutputFormat.JSON, 0)])
def test_what_other_programs_read_is_whole(
    tables: Path, form: OutputFormat, header: int, capsys: pytest.CaptureFixture[str]
) -> None:
    shell(tables, form).run(LONG)
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 9**4 + header
    assert printed.err == ""


@pytest.mark.parametrize("form", OutputFormat)
def test_that_there_are_more_rows_is_told_beside_the_result(
    tables: Path, form: OutputFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    shell(tables, form, max_rows=2).run("SELECT number FROM rebalances")
    printed = capsys.readouterr()
    assert printed.err == "sql: there are more rows than the 2 that are shown; --rows sets how many\n"
    assert "more" not in printed.out
    shell(tables, form, max_rows=9).run("SELECT number FROM rebalances")
    assert capsys.readouterr().err == ""


def test_functions_that_give_rows_are_sparks(tables: Path) -> None:
    with pytest.raises(SparkWasStarted):
        shell(tables).run("SELECT a.id FROM range(3) a")


def test_a_long_table_is_cut(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell(tables).run(LONG)
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1000 + 5
    assert "more rows than the 1000" in printed.err


def test_a_row_that_cant_be_computed_is_told_after_those_before_it(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # DuckDB's own function: Spark is not asked for what is written already.
    numbers = "SELECT explode(sequence(1, 1000000)) AS n"
    late = f"SELECT CASE WHEN n > 900000 THEN error('too far') ELSE n END FROM ({numbers})"
    with pytest.raises(BadStatement, match=r"too far .*--spark"):
        shell(tables, OutputFormat.CSV).run(late)
    assert len(capsys.readouterr().out.splitlines()) > 1000


def test_times_with_a_zone_are_shown_in_utc(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    write_table(tmp_path, "group_transitions", [])
    at = pa.array([datetime(2026, 1, 1, 2, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    rows = [pa.nulls(1, field.type) if field.name != "ts" else at for field in violations_arrow()]
    write_deltalake(str(tmp_path / "violations"), pa.table(rows, schema=violations_arrow()))
    shell(tmp_path, OutputFormat.JSON).run("SELECT ts FROM violations")
    assert capsys.readouterr().out == '{"ts":"2026-01-01T02:00:00.000Z"}\n'
    shell(tmp_path).run("SELECT ts, hour(ts) AS hour FROM violations")
    assert "|2026-01-01 02:00:00|2   |" in capsys.readouterr().out


def test_values_are_shown_as_spark_shows_them() -> None:
    assert [text_of(value) for value in (None, True, b"\x00\xff", [1, None], {"a": [0]})] == [
        "NULL", "true", "[00 FF]", "[1, NULL]", "{a -> [0]}",
    ]  # fmt: skip


def test_comments_of_columns_are_described(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell(tables).run("DESCRIBE waited_for")
    assert "joined, reconciled, left, expelled" in capsys.readouterr().out


def test_names_have_letters_of_either_case(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell(tables, OutputFormat.CSV).run("SELECT count(*) AS n FROM Rebalances")
    assert capsys.readouterr().out.split() == ["n", "9"]
    shell(tables).run("DESCRIBE Rebalances")
    assert "|generation" in capsys.readouterr().out


@pytest.mark.spark
def test_what_was_made_in_spark_is_asked_there(
    spark: SparkSession, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = LocalShell(str(tables), None, spark.newSession, Results(OutputFormat.CSV))
    shell.run_all("CREATE TEMPORARY VIEW made AS SELECT 7 AS seven; SELECT * FROM made; DESCRIBE made")
    printed = capsys.readouterr().out.split()
    assert printed[printed.index("seven") + 1] == "7"
    assert any(line.startswith("seven,int") for line in printed)
    with pytest.raises(BadStatement, match="did you mean generation"):
        shell.run("SELECT generaton FROM rebalances")


def test_a_typo_in_the_first_word_needs_no_spark(tables: Path) -> None:
    shell = LocalShell(str(tables), None, start_spark, Results())
    with pytest.raises(BadStatement, match="no statement begins with SELEC; did you mean SELECT"):
        shell.run("SELEC * FROM groups")
    with pytest.raises(BadStatement, match="no statement begins with rebalances"):
        shell.run("rebalances")
    # What Spark alone can do goes to it, as before.
    with pytest.raises(SparkWasStarted):
        shell.run("-- of the catalog\nSHOW TABLES")


def test_the_log_of_the_tables_that_are_asked_is_read_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "live" / "tables").mkdir(parents=True)
    (tmp_path / "live" / "log").touch()
    (tmp_path / "other" / "tables").mkdir(parents=True)
    for folder in (tmp_path / "live" / "tables", tmp_path / "live"):
        assert log_beside(str(folder)) == tmp_path / "live" / "log"
    assert log_beside(str(tmp_path / "other" / "tables")) is None
    assert log_beside("s3://bucket/live/tables") is None


def test_a_body_that_is_no_json_leaves_the_views_to_be_asked(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The live job refuses such a request, and its log has it as it came."""
    folder = tmp_path / "tables"
    shutil.copytree(tables, folder)
    request_log = DeltaTable(folder / "request_log")
    rows = request_log.to_pyarrow_table()
    joins = rows.filter(pc.equal(rows.column("api"), "JoinGroup")).slice(0, 1)
    at = joins.schema.get_field_index("body")
    broken = joins.set_column(at, joins.schema.field(at), pa.array(["{bad"], joins.schema.field(at).type))
    write_deltalake(str(folder / "request_log"), broken, mode="append")
    asked = shell(folder)
    for name in INCIDENT_VIEWS:
        asked.run(f"SELECT count(*) FROM {name}")
    capsys.readouterr()
    asked.run("SELECT get_json_object(body, '$.groupId') AS of, from_json(body, 'groupId STRING').groupId AS too "
              "FROM request_log WHERE body = '{bad'")  # fmt: skip
    assert capsys.readouterr().out.count("NULL") == 2
    asked.run("SELECT get_json_object(max(get_json_object(body, '$')), '$.a') AS nested FROM request_log "
              "WHERE body = '{bad'")  # fmt: skip
    assert capsys.readouterr().out.count("NULL") == 1
