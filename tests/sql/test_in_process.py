"""The incident views that this process computes are those that Spark computes."""

from __future__ import annotations

import gzip
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from pyspark.sql import SparkSession

from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.registration import make_views, register
from coordinator_udf.sql.shapes import SHAPES, views_named
from schemas.findings_views import findings_between
from tests.conftest import SAMPLE_LOG, shared
from tests.sql.incident_views import VIEWS_IN_PROCESS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: Of each kind of group, with both logs and with the broker's own log alone; one with a topic that grew.
LOGS = ("storm.request", "storm.server", "kip848.request", "static-restart.request", "subscriptions.request",
        "broker-restart.request", "crash.server", "migrate.server")  # fmt: skip
#: Kafka Connect's workers, and an administrator who is refused.
OTHERS = ("connect", "admin-ops")
#: A part of the time of the recordings.
TIME = ("2026-11-22 06:52:30.000000", "2026-11-22 07:05:00.000000")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tables")
    # And one whose members share a client id.
    alike = tmp_path_factory.mktemp("alike") / "alike.log"
    alike.write_bytes(
        re.sub(rb"(java|kafkapython|rdkafka|aiokafka)-[0-9]+", b"java", gzip.decompress(SAMPLE_LOG.read_bytes()))
    )
    logs = [shared("evidence", "dev", f"{name}.log.gz") for name in LOGS]
    logs += [shared("broker", "logs-dev", f"{name}.log.gz") for name in OTHERS]
    replay(None, ReplayRequest((*logs, alike), out, ReplayOptions(), overwrite=True), print)
    return out


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr({name: plain(value) for name, value in row.items()}) for row in rows)


def plain(value: Any) -> Any:
    """A value without what differs between the two although it means the same."""
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


def test_both_engines_give_the_same_rows(spark: SparkSession, tables: Path) -> None:
    register(spark, str(tables), as_they_are=True, views=())
    make_views(spark, VIEWS_IN_PROCESS)
    views = ViewsInProcess(str(tables))
    views.make(VIEWS_IN_PROCESS)
    for name in VIEWS_IN_PROCESS:
        # Views stand on views: what Spark has computed of one it needn't compute for each that follows.
        expected = [row.asDict(recursive=True) for row in spark.table(name).cache().collect()]
        found = views.ask(f"SELECT * FROM {name}")
        assert [list(row) for row in found[:1]] == [list(row) for row in expected[:1]], name
        assert in_order(found) == in_order(expected), name
    part = findings_between(*TIME)
    of_part = in_order(views.ask(part))
    assert 0 < len(of_part) < len(found)
    assert of_part == in_order([row.asDict(recursive=True) for row in spark.sql(part).collect()])
    spark.catalog.clearCache()
    views.close()


def test_a_session_has_them_with_types_and_comments(spark: SparkSession, tables: Path) -> None:
    register(spark, str(tables), as_they_are=True, views=())
    views = ViewsInProcess(str(tables))
    make_views(spark, views_named("waited_for storms"), views)
    told = {row["col_name"]: (row["data_type"], row["comment"]) for row in spark.sql("DESCRIBE waited_for").collect()}
    assert told["how"][1].startswith("joined, reconciled, left")
    assert told["waited_ms"] == ("bigint", "from started to until")
    assert told["started"][0] == "timestamp"
    stormy = spark.sql(
        "SELECT sum(stopped_ms) AS stopped, min(hour(started)) AS hour FROM storms WHERE source LIKE 'storm%'"
    ).collect()
    assert (stormy[0]["hour"], stormy[0]["stopped"] > 0) == (6, True)


def test_a_session_has_views_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    make_views(spark, VIEWS_IN_PROCESS, ViewsInProcess(str(tmp_path)))
    assert spark.sql("SELECT * FROM expulsions JOIN findings USING (group_id)").collect() == []
    assert dict(spark.table("expulsions").dtypes)["at"] == "timestamp"


def test_tables_that_are_not_there_are_empty_and_have_their_columns(tmp_path: Path) -> None:
    """Times among them, as in those that a simulation writes."""
    views = ViewsInProcess(str(tmp_path))
    for name, shape in SHAPES.items():
        assert views.ask(f"SELECT count(*) AS n FROM {name}") == [{"n": 0}]
        assert views.schema(name).names == shape.fieldNames()


def test_nothing_but_results_is_written_while_a_statement_is_computed(tmp_path: Path) -> None:
    views = ViewsInProcess(str(tmp_path))
    assert views.ask("SELECT current_setting('enable_progress_bar') AS is_drawn") == [{"is_drawn": False}]
    views.close()


class Stopped(Exception):
    """What a signal raises."""


def test_a_signal_that_comes_before_duckdb_has_begun_ends_the_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise Stopped

    long = sqlglot.parse_one("SELECT sum(a.range * b.range) AS s FROM range(10000000) a, range(10000000) b", "duckdb")
    views = ViewsInProcess(str(tmp_path))
    submit = views._worker.submit

    def submit_late(work: Callable[[], object]) -> Future[object]:
        def late() -> object:
            time.sleep(1)
            return work()

        return submit(late)

    monkeypatch.setattr(views._worker, "submit", submit_late)
    monkeypatch.setattr("coordinator_udf.sql.in_process._translated", lambda parsed: parsed.sql("duckdb"))
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Stopped):
            views.rows(long)
    finally:
        signal.signal(signal.SIGALRM, before)
    # Waits for DuckDB.
    views.close()
