"""The statements for a catalog are ones that Spark runs, and its views answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from coordinator_udf.commands.sql import main
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql import ddl
from coordinator_udf.sql.ddl import statements_for
from coordinator_udf.sql.in_process import translate
from coordinator_udf.sql.shapes import SHAPES, views_named
from schemas.views import VIEWS
from tests.conftest import SAMPLE_LOG
from tests.sql.conftest import write_table

ASKED = views_named("groups member_events")


def test_a_catalog_has_the_tables_and_views(spark: SparkSession, tmp_path: Path) -> None:
    # What other tests named in the session would stand in the way of a catalog's names.
    spark = spark.newSession()
    replay(None, ReplayRequest((SAMPLE_LOG,), tmp_path, ReplayOptions(), overwrite=True), print)
    try:
        for statement in statements_for(str(tmp_path), "muster_ddl"):
            # Spark takes seconds to plan each of the others.
            is_view = statement.startswith("CREATE OR REPLACE VIEW")
            if not statement.startswith("--") and (not is_view or statement.split()[4] in ASKED):
                spark.sql(statement)
        assert spark.sql("SELECT count(*) AS n FROM muster_ddl.groups").collect()[0]["n"] == 2
        told = {row["col_name"]: row["comment"] for row in spark.sql("DESCRIBE muster_ddl.member_events").collect()}
        assert told["timer"].startswith("session, join, sync")
    finally:
        spark.sql("USE default")
        spark.sql("DROP SCHEMA IF EXISTS muster_ddl CASCADE")


def test_what_needs_a_function_of_python_is_left_out(tmp_path: Path) -> None:
    statements = list(statements_for(str(tmp_path), "main.groups"))
    assert statements[:2] == ["CREATE SCHEMA IF NOT EXISTS main.groups", "USE main.groups"]
    left_out = [statement.split()[1] for statement in statements if statement.startswith("--")]
    assert left_out == ["members", "assignments", "assignment_history"]
    views = [statement for statement in statements if statement.startswith("CREATE OR REPLACE VIEW")]
    assert len(views) > 12
    comments = [text for view in views for text in re.findall(r"COMMENT '((?:[^'\\]|\\.)*)'", view)]
    assert max(map(len, comments)) >= 200
    # More a Hive metastore refuses.
    assert all(len(comment.replace("\\'", "'")) <= 256 for comment in comments)
    assert all(translate(view.partition(") AS ")[2]) for view in views)


def test_the_statements_are_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = spark.newSession()
    replay(None, ReplayRequest((SAMPLE_LOG,), tmp_path, ReplayOptions(), overwrite=True), print)
    # Spark takes seconds to plan each of the others.
    monkeypatch.setattr(ddl, "VIEWS", {name: VIEWS[name] for name in (*ASKED, "members")})
    try:
        told: list[str] = []
        # A second time it replaces what the first one made.
        for _ in range(2):
            made = ddl.install(spark, str(tmp_path), "muster_installed", told.append)
            assert made == [*SHAPES, *ASKED, "members"]
        assert told == [*made, *made]
        assert spark.catalog.getTable("muster_installed.members").tableType == "MANAGED"
        asked = spark.sql("SELECT count(*) AS n FROM muster_installed.member_events WHERE event = 'expelled'")
        assert asked.collect()[0]["n"] == 6
    finally:
        spark.sql("USE default")
        spark.sql("DROP SCHEMA IF EXISTS muster_installed CASCADE")


def test_without_a_schema_statements_have_none(tmp_path: Path) -> None:
    write_table(tmp_path, "group_transitions", [])
    app = typer.Typer()
    app.command()(main)
    ran = CliRunner().invoke(app, ["--ddl", "--root", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith("CREATE TABLE IF NOT EXISTS ")
    assert "USE " not in ran.output
    named = CliRunner().invoke(app, ["--root", str(tmp_path), "--ddl", "main.groups"])
    assert named.output == f"CREATE SCHEMA IF NOT EXISTS main.groups;\nUSE main.groups;\n{ran.output}"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--install needs --ddl CATALOG.SCHEMA"),
        (["--ddl"], "--install needs --ddl CATALOG.SCHEMA"),
        (["--ddl", "main.groups"], "--install needs --spark-conf FILE"),
        (["--ddl", "main.groups", "--spark-conf", "nowhere.conf"], "nowhere.conf"),
        (["--ddl", "main.groups", "--spark-conf", "some.conf"], "doesn't set spark.sql.warehouse.dir"),
    ],
)
def test_what_an_installation_lacks_is_told_before_spark_starts(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path, "group_transitions", [])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.conf").write_text("spark.hadoop.hive.metastore.uris thrift://127.0.0.1:9083\n")
    app = typer.Typer()
    app.command()(main)
    ran = CliRunner().invoke(app, ["--root", str(tmp_path), "--install", *words])
    assert ran.exit_code == 2
    assert told in ran.output
