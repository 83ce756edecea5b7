"""What tests of several rooms need: where the recordings lie, and one small Spark session a run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
#: The shipped sample of a real broker's request log, see data/README.md.
SAMPLE_LOG = ROOT / "tests" / "data" / "crash.log.gz"
#: More recordings than are shipped (broker logs, oracle traces); tests that need them skip where they are absent.
SHARED = Path(os.environ.get("MUSTER_RECORDINGS", ROOT.parent / "shared"))

# Spark's timestamps come to Python in the machine's time zone; the tests say what they expect in UTC.
os.environ["TZ"] = "UTC"
time.tzset()
# Every JVM of the tests, this one's session and those of drivers, jobs and tools, is young when it ends: what it would
# compile well, and collect in several threads, it takes from the tests beside it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData")


def shared(*parts: str) -> Path:
    """A path among the recordings that are not shipped; the calling test is skipped where it is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no recordings at {path} (set MUSTER_RECORDINGS to where they are)")
    return path


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests that need one: two cores, two shuffle partitions, Delta."""
    from coordinator_udf.tables.spark_session import delta_session

    warehouse = str(tmp_path_factory.mktemp("spark"))
    session = delta_session(
        "muster-tests",
        {
            "spark.master": "local[2]",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.databricks.delta.snapshotPartitions": "1",
            # Each plan runs once or twice on some rows: to compile it takes longer than to interpret it. What is
            # started as a job (tests of kills, of the cluster, of the live job) has the settings of a job.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": warehouse,
            "spark.local.dir": warehouse,
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
