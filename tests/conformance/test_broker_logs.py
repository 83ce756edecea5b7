"""Request logs of a real broker under real clients, replayed: what the log can decide is the same.

How many answers each log leaves undecided, and why, is what the log lacks; a change of these numbers is looked at.
"""

from __future__ import annotations

import pytest

from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.read_source import read_source
from coordinator_udf.replay.recorded_task import run_and_compare
from tests.conftest import SAMPLE_LOG, shared

#: Of the timeline files: what the broker was set to while these logs were written.
SETTINGS = {
    "limits": {
        "group.max.size": "3",
        "group.min.session.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
        "offset.metadata.max.bytes": "64",
        "group.consumer.max.size": "2",
    },
    "expiry": {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "5000"},
}

CLASSIC = {
    "admin-ops": 100, "assignors": 500, "broker-restart": 1_400, "commits": 1_700, "connect": 200, "crash": 400,
    "expiry": 100, "limits": 1_800, "max-poll": 400, "rolling-strategy": 250, "scale-1-5": 350, "static-restart": 400,
    "storm": 1_000, "subscriptions": 200, "txn": 300,
}  # fmt: skip

GROUP_APIS = {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"}


def test_the_shipped_sample_is_answered_as_the_broker_did() -> None:
    _, verdict = run_and_compare(read_source(SAMPLE_LOG, "sample", ReplayOptions()))
    assert verdict.differences == []
    assert sum(verdict.identical.values()) > 400


@pytest.mark.parametrize("name", sorted(CLASSIC))
def test_a_log_is_answered_as_the_broker_did(name: str) -> None:
    path = shared("broker", "logs-dev", f"{name}.log.gz")
    source = read_source(path, path.name, ReplayOptions(overrides=SETTINGS.get(name, {})))
    _, verdict = run_and_compare(source)
    undecided = {reason: dict(places) for reason, places in verdict.undecided.items()}
    assert (dict(verdict.different), source.unsupported - source.unsupported) == ({}, {}), undecided
    assert sum(verdict.identical.values()) >= CLASSIC[name]
