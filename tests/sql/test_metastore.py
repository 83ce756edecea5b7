"""Tables and views in a metastore: asked by JDBC, of a Spark that has nothing of this project."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from coordinator_udf.commands.sql import SETTINGS
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from coordinator_udf.tables.spark_session import resolved_jars
from scripts.ports import free_port
from tests.conftest import ROOT, SAMPLE_LOG
from tests.nightly import only_at_night
from tests.spark.local_cluster import own_environment
from tests.waiting import PATIENCE_S, wait

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    only_at_night("test_ddl.py runs the statements"),
]

SPARK = Path(pyspark.__path__[0])
FIRST = "SELECT client_id FROM assignment_history ORDER BY since, client_id LIMIT 1"
#: Some of each kind: views, what becomes tables as Spark would plan it for long, and what needs a function of Python.
#: Spark plans each of the other views for seconds.
ASKED = ("member_events", "findings", "storms", "waited_for", "assignment_history")
_MUSTER = (
    sys.executable, "-c", "import sys; sys.argv[0] = 'muster'; from coordinator_udf.commands.app import main; main()",
)  # fmt: skip


def settings(folder: Path) -> dict[str, str]:
    """Spark's settings for a metastore of files in a folder, which one process at a time has."""
    return {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
    }


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with a metastore in which the tables of an incident are."""
    replay(None, ReplayRequest((SAMPLE_LOG,), tmp_path / "tables", ReplayOptions()), print)
    conf = tmp_path / "spark.conf"
    conf.write_text("".join(f"{name} {value}\n" for name, value in settings(tmp_path).items()))
    words = ("sql", "--root", str(tmp_path), "--ddl", "incident", "--install", "--spark-conf", str(conf))
    told = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [*_MUSTER, *words], cwd=tmp_path, env=told, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return tmp_path


@pytest.fixture
def server(installed: Path) -> Iterator[int]:
    """The port of Spark's own Thrift server on that metastore."""
    jars = resolved_jars()
    if not jars:
        pytest.skip("Delta's jars were not resolved (scripts/setup)")
    port = free_port()
    told = {
        **SETTINGS,
        **settings(installed),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.hadoop.hive.server2.thrift.port": str(port),
        "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [str(SPARK / "bin" / "spark-submit"), "--master", "local[2]"]
    # Sessions of the Thrift server don't see what --jars brings, and what others need would hide Spark's own.
    command += ["--driver-class-path", ":".join(jar for jar in jars.split(",") if "delta-" in Path(jar).name)]
    for name, value in told.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2", "spark-internal"]
    with (installed / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=installed, env=own_environment(), stdout=log, stderr=log, start_new_session=True
        )
    yield port
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(PATIENCE_S)


def connected(spark: SparkSession, port: int, log: Path) -> Any:
    """A connection by Hive's JDBC driver, as a BI tool has it."""
    jvm: Any = spark.sparkContext._jvm
    found: list[Any] = []

    def connects() -> bool:
        try:
            found.append(
                jvm.org.apache.hive.jdbc.HiveDriver().connect(
                    f"jdbc:hive2://127.0.0.1:{port}/incident", jvm.java.util.Properties()
                )
            )
        except Py4JJavaError:
            # It doesn't listen yet.
            return False
        return True

    wait(connects, "the server listens", lambda: log.read_text()[-4000:], every_s=1)
    return found[0]


def test_views_are_asked_by_jdbc(spark: SparkSession, installed: Path, server: int) -> None:
    views = ViewsInProcess(str(installed / "tables"))
    views.make(views_named(" ".join(ASKED)))
    expected = {name: views.ask(f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in ASKED}
    first = views.ask(FIRST)[0]["client_id"]
    views.close()
    connection = connected(spark, server, installed / "server.log")
    statement = connection.createStatement()
    counted = {}
    for name in ASKED:
        rows = statement.executeQuery(f"SELECT count(*) FROM (SELECT * FROM {name} ORDER BY 1)")
        rows.next()
        counted[name] = rows.getLong(1)
    assert counted == expected
    rows = statement.executeQuery(FIRST)
    rows.next()
    assert rows.getString(1) == first
    connection.close()
