"""Recordings of Kafka's own consumer, replayed: ours does the same, output for output."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_udf.replay.members.summary import RecordingVerdict, judge
from tests.conftest import ROOT, shared

SAMPLE = sorted(
    path
    for family in ("member-consumer", "loop-consumer", "loop-mixed")
    for path in (ROOT / "tests" / "data" / "members").glob(f"{family}-*.jsonl.gz")
)


def _identical(verdict: RecordingVerdict) -> int:
    assert verdict.difference is None, verdict.difference
    return verdict.identical


@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: path.name)
def test_a_shipped_recording_is_the_same(path: Path) -> None:
    assert _identical(judge(path, "consumer")) > 0


@pytest.mark.slow
@pytest.mark.parametrize("family", ["member-consumer", "loop-consumer", "loop-mixed"])
def test_all_recordings_of_a_family_are_the_same(family: str) -> None:
    paths = sorted(shared("oracle-member", "traces").glob(f"{family}-*.jsonl.gz"))
    assert sum(_identical(judge(path, "consumer")) for path in paths) > 2_000
