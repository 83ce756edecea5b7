"""The statements for a catalog are ones that Spark runs, and its views answer."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.ddl import statements_for
from coordinator_udf.sql.in_process import translate
from coordinator_udf.sql.shapes import views_named
from tests.conftest import SAMPLE_LOG

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
    assert all(translate(view.partition(") AS ")[2]) for view in views)
