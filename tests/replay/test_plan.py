"""Which inputs are one coordinator's."""

from __future__ import annotations

import bz2
import gzip
import random
import shutil
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import zstandard

from coordinator_udf.replay.inputs.detect import Format, read_source
from coordinator_udf.replay.inputs.plan import plan
from coordinator_udf.replay.judge.report import summary
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, check_request, replay
from coordinator_udf.user_errors import InputError
from tests.conftest import SAMPLE_LOG, shared


def lines() -> list[str]:
    return gzip.decompress(SAMPLE_LOG.read_bytes()).decode().splitlines(keepends=True)


@pytest.mark.parametrize("seed", range(4))
def test_two_halves_in_the_wrong_order_are_the_whole(seed: int, tmp_path: Path) -> None:
    text = lines()
    cut = random.Random(seed).randrange(10, len(text) - 10)
    (tmp_path / "a.log.zst").write_bytes(zstandard.compress("".join(text[cut:]).encode()))
    (tmp_path / "b.log.bz2").write_bytes(bz2.compress("".join(text[:cut]).replace("\n", "\r\n").encode()))
    (found,) = plan([tmp_path / "a.log.zst", tmp_path / "b.log.bz2"])
    assert [path.name for path in found.paths] == ["b.log.bz2", "a.log.zst"]
    whole = read_source(SAMPLE_LOG, "x", ReplayOptions())
    parts = read_source(found.paths, "x", ReplayOptions(), found.form)
    assert parts.rows == whole.rows
    assert parts.rejections == []


def test_a_brokers_own_log_goes_beside_its_request_log(tmp_path: Path) -> None:
    for name in ("crash.request.log.gz", "crash.server.log.gz", "storm.server.log.gz"):
        shutil.copy(shared("evidence", "dev", name), tmp_path)
    both, alone = plan([tmp_path])
    assert (both.form, [path.name for path in both.info_paths]) == (Format.KAFKA, ["crash.server.log.gz"])
    assert (alone.form, alone.source) == (Format.INFO, "storm.server.log.gz")


def test_copies_of_one_log_are_not_put_together(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(lines()))
    (tmp_path / "b").write_text("".join(lines()))
    assert len(plan([tmp_path / "a", tmp_path / "b"])) == 2


def test_a_pattern_and_a_truncated_file(tmp_path: Path) -> None:
    whole = SAMPLE_LOG.read_bytes()
    (tmp_path / "a.log.gz").write_bytes(whole[: len(whole) // 2])
    (found,) = plan([tmp_path / "*.gz"])
    assert "breaks off" in found.warnings[0]
    (report,) = replay(None, ReplayRequest((tmp_path / "a.log.gz",), tmp_path / "out", ReplayOptions()), print)
    assert (report.rejected, sum("breaks off" in line for line in summary([report]))) == (1, 1)
    with pytest.raises(InputError, match="no file fits"):
        plan([tmp_path / "*.zip"])


def own_log(path: Path, begins: datetime, lines: Iterable[str], seconds: float = 1) -> Path:
    """Writes a broker's own log of messages, one each so many seconds."""
    timed = ((begins + timedelta(seconds=seconds * number), line) for number, line in enumerate(lines))
    path.write_text("".join(f"[{at:%F %T},{at.microsecond // 1000:03}] INFO {line}\n" for at, line in timed))
    return path


NINE = datetime(2026, 11, 22, 9)
#: No line of a dump of the offsets topic, although it names a file of it.
OTHER = ["Deleted producer state snapshot /kafka/__consumer_offsets-2/00041.snapshot (o.a.k.s.i.log.SnapshotFile)"]
STARTS = ["[GroupCoordinator id=1] Starting up. (org.apache.kafka.coordinator.group.GroupCoordinatorService)"]
SHARD = "[GroupCoordinator id=1 topic=__consumer_offsets partition=2]"
STABLE = [f"{SHARD} Stabilized group g generation 1 with 2 members. (o.a.k.c.group.GroupMetadataManager)"]


def test_parts_without_a_line_of_the_coordinator_are_passed_over_beside_others(tmp_path: Path) -> None:
    later = own_log(tmp_path / "server.log", NINE + timedelta(seconds=10), OTHER + STABLE + OTHER)
    first = own_log(tmp_path / "server.log.1", NINE, OTHER * 10)
    controller = tmp_path / "controller.log"
    controller.write_text(
        "java.io.IOException: gone\n\tat A.b\n[2026-11-22 09:00:03,120] DEBUG [Controller 1] x (kafka)\n"
    )
    (found,) = plan([first, controller, later])
    assert (found.source, found.form, found.info_paths) == ("server.log", Format.INFO, (later,))
    told = "server.log.1: lines of the group coordinator 0, others 10: passed over"
    assert found.passed_over[0] == told
    (report,) = replay(None, ReplayRequest((first, controller, later), tmp_path / "out", ReplayOptions()), print)
    assert report.failure is None
    assert told in summary([report])
    with pytest.raises(InputError, match=r"server.log.1 is a log, but none of its lines \(10\) is one of"):
        check_request(ReplayRequest((first,), tmp_path / "none", ReplayOptions()))


def test_parts_of_a_brokers_own_log_follow_upon_each_other_whatever_they_name(tmp_path: Path) -> None:
    """Groups that are stable have no lines for hours, but the broker has."""
    hours = [NINE + timedelta(hours=number) for number in range(4)]
    parts = [
        own_log(tmp_path / "a", hours[0], STARTS + OTHER * 59, 60),
        own_log(tmp_path / "c", hours[1], STABLE + OTHER * 59, 60),
        own_log(tmp_path / "b", hours[2], OTHER * 60, 60),
        own_log(tmp_path / "d", hours[3], OTHER * 59 + STABLE, 60),
    ]
    (found,) = plan(sorted(parts))
    assert found.info_paths == (parts[0], parts[1], parts[3])
    other = [line.replace("id=1", "id=2") for line in STABLE]
    assert len(plan([*parts, own_log(tmp_path / "e", hours[3] + timedelta(hours=1), other)])) == 2


def test_parts_may_be_cut_where_lines_are_out_of_order(tmp_path: Path) -> None:
    """Threads take the time of a line before they write it."""
    first = own_log(tmp_path / "b", NINE, STABLE * 20)
    later = own_log(tmp_path / "a", NINE + timedelta(seconds=18.993), STABLE * 20)
    (found,) = plan([later, first])
    assert found.info_paths == (first, later)
    assert len(plan([first, own_log(tmp_path / "c", NINE + timedelta(seconds=15), STABLE * 20)])) == 2


_OWN_LINE = (
    "[2026-11-21 02:44:00,123] INFO [GroupCoordinator id=1] Preparing to rebalance group g in state PreparingRebalance "
    "with old generation 0 (reason: Adding new member a with group instance id None) "
    "(kafka.coordinator.group.GroupCoordinator)\n"
)


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        ("".join(lines()), Format.INFO, "looks like a request log of Kafka's (Completed request:...): --format kafka"),
        (_OWN_LINE, Format.KAFKA, "looks like a broker's own log ([GroupCoordinator ...): --format info"),
        ("".join(lines()), Format.TABLE, "looks like a request log of Kafka's (Completed request:...): --format kafka"),
        ('{"type": "config", "ts": 1}\n', Format.OFFSETS, "looks like a trace (JSON objects with a type): --format tr"),
    ],
    ids=lambda value: value.value if isinstance(value, Format) else "",
)
def test_a_file_with_nothing_of_the_format_that_is_given_is_refused(
    text: str, form: Format, said: str, tmp_path: Path
) -> None:
    (tmp_path / "input").write_text(text)
    (found,) = plan([tmp_path / "input"], form)
    assert f"has nothing of what --format {form} says" in (found.failure or "")
    assert said in (found.failure or "")


def test_of_a_file_with_both_the_format_that_is_given_is_read(tmp_path: Path) -> None:
    (tmp_path / "input").write_text(_OWN_LINE + "".join(lines()))
    (requests,) = plan([tmp_path / "input"], Format.KAFKA)
    (own,) = plan([tmp_path / "input"], Format.INFO)
    assert (requests.form, [path.name for path in requests.paths]) == (Format.KAFKA, ["input"])
    assert (own.form, own.paths, [path.name for path in own.info_paths]) == (Format.INFO, (), ["input"])


def test_a_trace_that_begins_late_is_read_where_its_format_is_given(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("of a build tool\n" * 300 + '{"type": "config", "ts": 1}\n')
    (of_no_kind,) = plan([tmp_path / "input"])
    (trace,) = plan([tmp_path / "input"], Format.TRACE)
    assert "of no known kind" in (of_no_kind.failure or "")
    assert (trace.form, trace.failure) == (Format.TRACE, None)
