"""What-if from logs of real runs: each log's own run comes out of it, and runs under other settings are foretold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator_udf.simulation.measures import Measures
from coordinator_udf.simulation.what_if.comparison import Change, Outcome, compare
from coordinator_udf.simulation.what_if.group_log import GroupLog, read_groups
from coordinator_udf.simulation.what_if.log_entries import read_entries
from jobs.what_if import app
from tests.conftest import SAMPLE_LOG, shared

_CONSUMER = {
    "group.consumer.session.timeout.ms": 10_000,
    "group.consumer.min.session.timeout.ms": 10_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
}
CHANGES = {
    "base": Change(),
    "static": Change(is_static=True),
    "session30": Change(session_timeout_ms=30_000),
    "consumer": Change(protocol="consumer", settings=_CONSUMER),
}
#: What really happened: rebalances, partition-seconds without an owner, moves (from the recordings' README).
REAL = {
    ("W1", "base"): (10, 34.5, 46), ("W1", "static"): (0, 24.1, 0),
    ("W2", "base"): (3, 111.5, 8), ("W2", "static"): (2, 41.8, 8), ("W2", "session30"): (2, 562.7, 0),
    ("W2", "consumer"): (4, 61.7, 8), ("W3", "static"): (3, 4.3, 8),
}  # fmt: skip


def _group(workload: str) -> GroupLog:
    log = shared("evidence", "ab", "dev") / f"{workload}-base.request.log.gz"
    (group,) = read_groups(read_entries(log), {})
    return group


def _span(workload: str) -> tuple[int, int]:
    lines = (shared("evidence", "ab", "dev") / f"{workload}-base.callbacks.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    first = next(line["t"] for line in told if line["event"] in {"killed", "block-command", "close-command"})
    return first, next(line["t"] for line in told if line["event"] == "end")


def _foretold(workload: str, variant: str) -> Outcome:
    return compare(_group(workload), CHANGES[variant], range(8), _span(workload))


@pytest.mark.parametrize(("workload", "variant"), REAL)
def test_what_really_happened_is_foretold_from_the_base_log(workload: str, variant: str) -> None:
    outcome = _foretold(workload, variant)
    rebalances, unowned_s, moves = REAL[workload, variant]
    assert outcome.calibration.matched == outcome.calibration.recorded
    assert outcome.changed.rebalances == rebalances
    assert abs(outcome.changed.moves - moves) <= 0.1 * moves
    # Under load one run's partition-seconds differ from another's by a second or so; see the recordings' README.
    assert abs(outcome.changed.unowned_s - unowned_s) <= max(0.15 * unowned_s, 3.0)


def test_a_change_that_changes_nothing_foretells_the_base() -> None:
    outcome = _foretold("W2", "base")
    assert outcome.base == outcome.changed


def test_the_job_compares_a_shipped_log(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    arguments = [str(SAMPLE_LOG), "--group", "crash-a", "--static", "--seeds", "2", "--json", str(found)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "crash-a: calibration: " in result.output
    read: dict[str, Any] = json.loads(found.read_text())
    names = set(Measures.__dataclass_fields__)
    assert set(read["base"]["crash-a"]) == set(read["changed"]["crash-a"]) == names
    assert read["calibration"]["matched"] <= read["calibration"]["recorded"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nowhere"], "can't be read"),
        ([str(SAMPLE_LOG), "--group", "nobody"], "no such group"),
        ([str(SAMPLE_LOG), "--assignor", "best"], "assignor is 'best', expected range"),
        ([str(SAMPLE_LOG), "--set", "no.setting=1"], "unknown setting 'no.setting'"),
        ([str(SAMPLE_LOG), "--from", "noon"], "'noon' is no time"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert said in result.stderr
