"""When a broker looked for groups that have nothing left, as the answers tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.replay.broker_log import START_MS, KafkaLog, one_member

INTERVAL_MS = 20_000


def left_and_back(*, left_ms: int, back_ms: int, generation: int) -> KafkaLog:
    """A group that is empty for some time, and that begins anew if a look took it away meanwhile."""
    log = one_member(KafkaLog())
    for beat_ms in range(9_000, left_ms, 5_000):
        log.heartbeat("m-1", arrives=beat_ms)
    log.add(
        "LEAVE_GROUP", {"groupId": "g", "memberId": "m-1"}, {"throttleTimeMs": 0, "errorCode": 0},
        arrives=left_ms, version=1,
    )  # fmt: skip
    log.join("", "m-2", 79, arrives=back_ms)
    log.join("m-2", "m-2", generation=generation, arrives=back_ms + 10, takes=3_000)
    return log


def replayed(log: KafkaLog, tmp_path: Path) -> tuple[ReplaySource, int]:
    overrides = {"offsets.retention.check.interval.ms": str(INTERVAL_MS)}
    source = read_source(log.write(tmp_path / "log"), "log", ReplayOptions(partitions=1, overrides=overrides))
    _, verdict = run_and_compare(source)
    return source, sum(verdict.different.values())


def looks(source: ReplaySource) -> list[int]:
    return [row["log_ts"] - START_MS for row in source.rows if row["api"] == "ExpireOffsets"]


def test_a_group_may_be_gone_before_an_interval_of_the_log_is_over(tmp_path: Path) -> None:
    source, different = replayed(left_and_back(left_ms=6_000, back_ms=8_000, generation=1), tmp_path)
    assert different == 0
    (look_ms,) = looks(source)
    assert 6_000 < look_ms < 8_000


def test_looks_come_in_intervals_from_the_one_that_was_seen(tmp_path: Path) -> None:
    source, different = replayed(left_and_back(left_ms=46_000, back_ms=48_000, generation=1), tmp_path)
    assert different == 0
    (look_ms,) = looks(source)
    assert 6_000 < look_ms < 8_000


def test_a_group_may_still_be_there_when_an_interval_of_the_log_is_over(tmp_path: Path) -> None:
    source, different = replayed(left_and_back(left_ms=19_000, back_ms=22_000, generation=3), tmp_path)
    assert different == 0
    assert len(looks(source)) == 1


@pytest.mark.parametrize("generation", [2, 7])
def test_no_look_is_supposed_that_explains_nothing(generation: int, tmp_path: Path) -> None:
    source, different = replayed(left_and_back(left_ms=6_000, back_ms=8_000, generation=generation), tmp_path)
    assert different > 0
    assert looks(source) == []
