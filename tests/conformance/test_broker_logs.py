"""Request logs of a real broker under real clients, replayed: every answer that the log can decide is the same."""

from __future__ import annotations

import pytest

from coordinator_udf.replay.inputs.broker_log.undecided import OLDER
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.conftest import SAMPLE_LOG, shared

#: What the broker was set to while these logs were written (their timeline files); else it had Kafka's defaults.
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

#: How many answers of a log are the same, at least.
IDENTICAL = {
    "admin-ops": 250, "assignors": 600, "broker-restart": 1_700, "busy": 8_900, "commits": 1_800, "connect": 260,
    "crash": 450, "expiry": 170, "fuzz-classic": 1_450, "fuzz-consumer": 3_300, "kip848": 490, "limits": 2_600,
    "max-poll": 420, "migrate": 390, "rolling-strategy": 300, "scale-1-5": 390, "static-restart": 440, "storm": 1_080,
    "subscriptions": 240, "txn": 330,
}  # fmt: skip

#: How many the log leaves undecided, at most, and why. `admin-ops` and `expiry` ask about all groups that there are.
UNDECIDED = {
    "admin-ops": {OLDER: 60},
    "busy": {OLDER: 6},
    "connect": {OLDER: 1},
    "expiry": {OLDER: 225},
    "fuzz-classic": {OLDER: 5},
    "fuzz-consumer": {OLDER: 5},
    "kip848": {OLDER: 6},
    "limits": {OLDER: 4},
}


def test_the_shipped_sample_is_answered_as_the_broker_did() -> None:
    _, verdict = run_and_compare(read_source(SAMPLE_LOG, "sample", ReplayOptions()))
    assert verdict.differences == []
    assert sum(verdict.identical.values()) > 450


@pytest.mark.parametrize("name", sorted(IDENTICAL))
def test_a_log_is_answered_as_the_broker_did(name: str) -> None:
    path = shared("broker", "logs-dev", f"{name}.log.gz")
    source = read_source(path, path.name, ReplayOptions(overrides=SETTINGS.get(name, {})))
    _, verdict = run_and_compare(source)
    assert dict(verdict.different) == {}
    assert source.unsupported == {}
    assert sum(verdict.identical.values()) >= IDENTICAL[name]
    most = UNDECIDED.get(name, {})
    undecided = {reason: sum(places.values()) for reason, places in verdict.undecided.items()}
    assert {reason: n for reason, n in undecided.items() if n > most.get(reason, 0)} == {}
