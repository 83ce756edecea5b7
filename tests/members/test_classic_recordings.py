"""Recordings of Kafka's own classic members, fed to ours: every output the same."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from coordinator_udf.replay.members.summary import RecordingVerdict, judge
from jobs import replay_members
from tests.conftest import ROOT, shared

SAMPLES = ROOT / "tests" / "data" / "members"
SAMPLE = SAMPLES / "member-classic-0009.jsonl.gz"
APP = typer.Typer()
APP.command()(replay_members.main)
FAMILIES = ("member-classic", "member-classic-leader", "loop-classic", "loop-mixed")


def _differences(verdicts: list[RecordingVerdict]) -> dict[str, object]:
    return {verdict.path.name: verdict.difference for verdict in verdicts if verdict.difference is not None}


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("member-classic*.gz")), ids=lambda path: path.name.split(".")[0])
def test_a_sample_is_replayed_without_a_difference(path: Path) -> None:
    verdict = judge(path)
    assert verdict.difference is None
    assert verdict.identical > 30


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all_recordings_are_replayed_without_a_difference(family: str) -> None:
    paths = sorted(shared("oracle-member", "traces").glob(f"{family}-[0-9]*.jsonl.gz"))
    verdicts = [judge(path, "classic") for path in paths]
    assert sum(verdict.identical for verdict in verdicts) > 1000
    assert _differences(verdicts) == {}


def _changed(tmp_path: Path, **change: object) -> Path:
    """A copy of the sample in which the first SyncGroup has another member id, or whatever ``change`` says."""
    lines = [json.loads(line) for line in gzip.decompress(SAMPLE.read_bytes()).splitlines()]
    sync = next(line for line in lines if line.get("api") == "SyncGroup" and line["dir"] == "out")
    sync.update(change)
    path = tmp_path / "changed.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


@pytest.mark.parametrize(
    "change", [{"ts": 1}, {"apiVersion": 0}, {"timeoutMs": 1}, {"to": "coordinator-9"}, {"body": {"assignments": []}}]
)
def test_what_is_not_as_recorded_is_found(tmp_path: Path, change: dict[str, object]) -> None:
    verdict = judge(_changed(tmp_path, **change))
    assert verdict.difference is not None
    assert verdict.difference.expected is not None
    assert verdict.difference.expected["api"] == "SyncGroup"


def test_the_job_counts_and_writes_the_first_difference(tmp_path: Path) -> None:
    changed, out = _changed(tmp_path, timeoutMs=1), tmp_path / "differences.jsonl"
    run = CliRunner().invoke(
        APP, [str(SAMPLE), str(changed), "--differences", str(out), "--fail-on-difference", "--protocol", "classic"]
    )
    assert run.exit_code == 1
    assert "member-classic: traces 1 identical, 1 different" in run.output
    (found,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert found["trace"] == str(changed)
    assert found["expected"]["timeoutMs"] == 1
    assert found["found"]["timeoutMs"] > 1


def test_a_file_that_is_no_recording_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"type": "poll", "dir": "in", "m": "m0"}\n')
    run = CliRunner().invoke(APP, [str(path)])
    assert run.exit_code == 2
    assert str(path) in run.output
