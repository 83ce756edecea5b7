"""The numbers that pages promise are those of the code, and the metrics that they tell of are those that are served."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from inspect import signature

import pytest

from coordinator_udf.gateway import own_process
from coordinator_udf.gateway.peers import FIRST_ID_BEFORE_CLUSTER
from coordinator_udf.gateway.security import (
    admission,
    certificates,
    oauthbearer,
    quotas,
    sasl,
    sasl_authentication,
    web_keys,
)
from coordinator_udf.gateway.security.settings import SecuritySettings
from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.gateway.upstream.passing import told_ranges
from coordinator_udf.gateway.upstream.settings import UpstreamSettings
from coordinator_udf.gateway.versions import COORDINATED
from coordinator_udf.log.embedded import DOWNTIME_AFTER_MS, EmbeddedLog
from coordinator_udf.log.kafka.answers import PATIENCE_S
from coordinator_udf.log.kafka.client import DELIVERY_TIMEOUT_MS, RECORD_BYTES_MAX
from coordinator_udf.log.kafka.topics import DEFAULT_RETENTION_MS
from coordinator_udf.log.rows import HEARD_WITHIN_MS, RECONNECT_MAX_MS
from coordinator_udf.streaming import sink
from coordinator_udf.streaming.folding import DEFAULT_FOLD_AFTER_ROWS
from coordinator_udf.streaming.lease import MISSED_AFTER_S, RENEW_EVERY_S, SILENT_AFTER_S
from coordinator_udf.streaming.options import StreamOptions
from coordinator_udf.streaming.session import SPARK_CONF, read_spark_conf
from coordinator_udf.tables import delta
from tests.conftest import ROOT
from tests.docs.pages import text_of
from tests.gateway.upstream.test_passing import EVERYTHING

_GATEWAY = GatewaySettings()
_LOCKED = SecuritySettings()
_UPSTREAM = UpstreamSettings(bootstrap=(("127.0.0.1", 9092),), first_broker_port=None)
_RANGES = told_ranges(EVERYTHING, COORDINATED)
_PRODUCE, _FETCH = 0, 1
_SPARK = read_spark_conf(SPARK_CONF)
_KEPT = "delta.deletedFileRetentionDuration"

#: A page, what it says with a place for each number, and the numbers.
PROMISED = (
    ("what-is-promised", "has been silent for {:.0f} s, answer heartbeats", MISSED_AFTER_S),
    (
        "what-is-promised",
        "answer heartbeats of members after {:.0f} s as a coordinator",
        _GATEWAY.loading_hold_ms / 1000,
    ),
    ("what-is-promised", "answers heartbeats after {:.0f} s, when sessions", _GATEWAY.request_timeout_ms / 1000),
    ("what-is-promised", "appends first after more than {:.0f} s puts a `Downtime` row", DOWNTIME_AFTER_MS / 1000),
    ("what-is-promised", "but last at least {:.0f} s more", HEARD_WITHIN_MS / 1000),
    ("what-is-promised", "by as long as the gap was, up to {:.0f} s", RECONNECT_MAX_MS / 1000),
    (
        "what-is-promised",
        "waits up to {:.0f} s and is told then that the coordinator loads",
        _GATEWAY.loading_hold_ms / 1000,
    ),
    ("what-is-promised", "lets the log take {:,} rows that aren't answered", _GATEWAY.unanswered_rows_max),
    ("what-is-promised", "of the partitions that it led wait up to {:.0f} s", DELIVERY_TIMEOUT_MS / 1000),
    ("what-is-promised", "wait for brokers for five minutes", PATIENCE_S == 300),
    ("what-is-promised", "beside the tables, each {:.0f} s)", RENEW_EVERY_S),
    ("what-is-promised", "or has been silent for {:.0f} s (stopped, cut off", SILENT_AFTER_S),
    ("run-it-live", "once there are {:,} of them (`--fold-after`)", DEFAULT_FOLD_AFTER_ROWS),
    ("in-front-of-your-cluster", "told of Produce up to v{} and Fetch up to v15", _RANGES[_PRODUCE][1]),
    ("in-front-of-your-cluster", "told of Produce up to v9 and Fetch up to v{}", _RANGES[_FETCH][1]),
    ("in-front-of-your-cluster", "are looked at every two seconds", _UPSTREAM.refresh_ms == 2_000),
    ("in-front-of-your-cluster", "starts waits {:.0f} s for one, and ends", _UPSTREAM.start_timeout_ms / 1000),
    ("in-front-of-your-cluster", "nodes from {:,} on that lead no partition", FIRST_ID_BEFORE_CLUSTER),
    ("kafka-as-the-log", "`delete`, seven days (`--retention-ms`)", DEFAULT_RETENTION_MS == 7 * 86_400_000),
    ("kafka-as-the-log", "| {} MiB | 32 MiB |", RECORD_BYTES_MAX // 2**20),
    ("kafka-as-the-log", "a tick into each partition twice a second", StreamOptions("", "", "").tick_ms == 500),
    ("kafka-as-the-log", "each gateway once a second", own_process._CLOCK_MS == 1_000),
    ("kafka-as-the-log", "jumps by more than three seconds", DOWNTIME_AFTER_MS == 3_000),
    ("lock-the-gateway", "may send frames of {} KiB and a dozen of them", _LOCKED.token_bytes_max // 2**10),
    ("lock-the-gateway", "and a dozen of them, within ten seconds", admission._FRAMES_MAX == 12),
    ("lock-the-gateway", "of them, within ten seconds; there may be", _LOCKED.strangers_timeout_ms == 10_000),
    ("lock-the-gateway", "there may be {} such connections", _LOCKED.strangers_max),
    ("lock-the-gateway", "message of PLAIN or SCRAM may have {} KiB", sasl._BYTES_MAX // 2**10),
    ("lock-the-gateway", "a token {} KiB: more than that", oauthbearer._BYTES_MAX // 2**10),
    ("lock-the-gateway", "Ten seconds' worth of requests may come at once", quotas._BURST_S == 10),
    (
        "how-it-works",
        "when the log is made ({} unless `--partitions`",
        signature(EmbeddedLog.create).parameters["partitions"].default,
    ),
    ("performance", "(`--large-batch`, {:,} rows by default", StreamOptions("", "", "").large_batch_rows),
    ("kafka-as-the-log", "to clients when {:.0f} s are over", _GATEWAY.request_timeout_ms / 1000),
    (
        "lock-the-gateway",
        "older file, too; a week before the gateway's own ends",
        certificates._WARNED_BEFORE.days == 7,
    ),
    ("lock-the-gateway", "more often than every ten seconds", web_keys._PAUSE_S == 10),
    ("lock-the-gateway", "same user, at most once a second", sasl_authentication._AGAIN_AT_MOST_EVERY_S == 1),
    ("on-a-cluster", "it waits for {:.0f} s whether the lease", SILENT_AFTER_S),
    ("on-a-cluster", "10 s, then the lease's {:.0f} s)", SILENT_AFTER_S),
    ("how-it-works", "reads those of the files, {:,} rows at a time", sink._TOLD_AT_ONCE),
    ("how-it-works", "(`spark.driver.maxResultSize`, {} MiB in", int(_SPARK["spark.driver.maxResultSize"].rstrip("m"))),
    ("how-it-works", "tables' upkeep an hour later", delta.PROPERTIES[_KEPT] == "interval 1 hours"),
)


@pytest.mark.parametrize(("page", "said", "number"), PROMISED, ids=[f"{page}: {said}" for page, said, _ in PROMISED])
def test_numbers_are_those_of_the_code(page: str, said: str, number: float | bool) -> None:
    """A number in words is compared where it stands in the list."""
    assert number is not False
    assert said.format(number) in " ".join(text_of(ROOT / "docs" / f"{page}.md").split())


#: Prints the packages that are there once all is loaded that Spark has executors do.
_ON_EXECUTORS = """
import sys
from importlib.metadata import packages_distributions
from coordinator_udf.streaming import large_batch, shard_function, worker_daemon
worker_daemon.preload()
packages = packages_distributions()
print(*{name for module in sys.modules for name in packages.get(module.partition(".")[0], ())})
"""
#: What comes with Spark or with a package that the page names.
_BROUGHT = {
    "muster",
    "pyspark",
    "py4j",
    "setuptools",
    "arro3-core",
    "python-dateutil",
    "pytz",
    "six",
    "typing_extensions",
}


def test_the_packages_that_executors_need_are_named() -> None:
    ran = subprocess.run([sys.executable, "-c", _ON_EXECUTORS], cwd=ROOT, capture_output=True, text=True, check=True)
    named = re.search(r"constraints\.txt\)\s+\(([^)]*)\)", text_of(ROOT / "docs" / "on-a-cluster.md"))
    assert named is not None
    assert set(ran.stdout.split()) - _BROUGHT == set(named[1].replace("\n", " ").split(", "))


def test_the_release_of_deltas_jars_is_that_of_its_package() -> None:
    page = text_of(ROOT / "docs" / "on-a-cluster.md")
    assert set(re.findall(r"io\.delta:delta-spark_4\.2_2\.13:([\d.]+)", page)) == {version("delta-spark")}


def test_all_metrics_are_told_of_and_no_others() -> None:
    kafka = "kafka_server_group_coordinator_metrics"
    metrics = [ROOT / "coordinator_udf" / room / "metrics.py" for room in ("gateway", "streaming")]
    source = "".join(path.read_text().replace('f"{_KAFKA}', f'"{kafka}') for path in metrics)
    served = set(re.findall(r'"((?:kafka|muster)_\w+)"', source)) - {kafka}
    told = text_of(ROOT / "docs" / "watch-it.md")
    named = {
        name.removesuffix("_total")
        for name in re.findall(r"`((?:kafka|muster)_\w+)", told)
        if "socketserver" not in name
    }
    shortened = {f"muster_gateway{name}".removesuffix("_total") for name in re.findall(r"`(_\w+)", told)}
    assert {name for name in served if "socketserver" not in name} == named | shortened
