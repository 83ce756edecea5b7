"""What tests of several rooms need: where the recordings lie, and one small Spark session a run."""

from __future__ import annotations

import os
import sys
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
# Spark's workers run `python3` unless they are told that it's this one.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def shared(*parts: str) -> Path:
    """A path among the recordings that are not shipped; the calling test is skipped where it is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no recordings at {path} (set MUSTER_RECORDINGS to where they are)")
    return path


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests that need one: two cores, two shuffle partitions, Delta."""
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    warehouse = tmp_path_factory.mktemp("spark")
    builder = (
        SparkSession.Builder()
        .master("local[2]")
        .appName("muster-tests")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.local.dir", str(warehouse))
    )
    session = configure_spark_with_delta_pip(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
