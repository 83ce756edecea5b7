"""What tests of several rooms need: where the recordings lie, one small Spark session, and who runs beside whom."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

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
# Jobs that tests kill can't clean up: what they, and all that tests start, put in a temporary place goes with the
# tests. Its path is short, for a socket's address has no more than 108 bytes. Folders of single tests stay where pytest
# has them.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
#: The second compiler takes a method only when it is ten times as hot as usual: in nine minutes of tests of one session
#: 426 s of CPU time in place of 487, of two runs side by side.
_HOTTER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
#: Of the process that runs the tests or starts others that do; those have its environment.
_TEMPORARY = None if "PYTEST_XDIST_WORKER" in os.environ else tempfile.mkdtemp(prefix="mt-")
if _TEMPORARY is not None:
    os.environ["TMPDIR"] = tempfile.tempdir = _TEMPORARY
    # What is registered first runs last: libraries that leave something there remove it at the end, too.
    atexit.register(shutil.rmtree, _TEMPORARY, ignore_errors=True)
#: How the reason of a skip begins where recordings are absent.
NO_RECORDINGS = "no recordings at"

# How long an example takes says how busy the machine is.
settings.register_profile("muster", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples each time: a change is judged by what it does, and new examples are what every other run looks for.
settings.register_profile("ci", settings.get_profile("muster"), derandomize=True, database=None)
settings.load_profile("muster")


def shared(*parts: str) -> Path:
    """A path among the recordings that are not shipped; the calling test is skipped where it is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{NO_RECORDINGS} {path}")
    return path


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks who needs the Spark session, and where tests run in several processes says which stay together.

    All that share the session stay in one process, as do the tests of one file, for they may share what they set up;
    but slow ones with a session, which wait for drivers that they kill, run beside it, with a session of their process.
    The session's tests take the longest together, so they begin first; then come the slow ones, with the others between
    them. Of the slow ones those that start Spark, and keep the cores busy, take turns with those that mostly wait for
    clients, sessions and pauses: all of a kind together would leave cores idle, or wait for them.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(_group(item)))
        turns = _turns(items)
        items.sort(key=lambda item: (_group(item) != SESSION, turns[_group(item)]))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuses to run tests in several processes where their groups are not known to what spreads them."""
    if getattr(session.config.option, "loadgroup", False) and any("@" not in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist doesn't keep groups of tests together with this version of pytest")


#: The group of the tests that share the Spark session.
SESSION = "spark session"
#: The group of slow tests that takes the longest, four minutes, so it begins first: nothing would be left to run beside
#: its end.
LONGEST = "tests/spark/test_kafka_log.py"


def _group(item: pytest.Item) -> str:
    shares_session = "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("slow") is None
    return SESSION if shares_session else item.nodeid.partition("::")[0]


def _turns(items: Sequence[pytest.Item]) -> dict[str, int]:
    """Returns the places of the groups.

    Slow ones that start Spark and such that wait take turns as long as there are both; between the rest of them come
    those that are quick, and only compute.
    """
    groups: dict[str, None] = {}
    of_mark: dict[str, set[str]] = {"slow": set(), "spark": set()}
    for item in items:
        groups[group := _group(item)] = None
        for mark, marked in of_mark.items():
            if item.get_closest_marker(mark) is not None:
                marked.add(group)
    in_order = sorted(groups, key=lambda group: group != LONGEST)
    slow = [group for group in in_order if group in of_mark["slow"]]
    starting = [group for group in slow if group in of_mark["spark"]]
    waiting = [group for group in slow if group not in of_mark["spark"]]
    quick = [group for group in in_order if group not in of_mark["slow"]]
    both = min(len(starting), len(waiting))
    places = [group for pair in zip(starting, waiting, strict=False) for group in pair]
    rest = [*starting[both:], *waiting[both:]]
    share = -(-len(quick) // max(1, len(rest)))
    for number, group in enumerate(rest):
        places += [group, *quick[number * share : (number + 1) * share]]
    places += quick[len(rest) * share :]
    return {group: place for place, group in enumerate(places)}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Says last how many tests were skipped for want of recordings, and what to do about it."""
    yield
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    count = sum(NO_RECORDINGS in reason for reason in skipped)
    if count:
        terminalreporter.write_line(
            f"{count} tests were skipped for want of recordings: put them at {SHARED}, or set MUSTER_RECORDINGS"
        )


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
        # Of all JVMs of the tests this one lives for minutes, in which its second compiler pays.
        jvm_options=("-XX:TieredStopAtLevel=4", *_HOTTER),
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
