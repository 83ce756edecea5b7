"""A long log is replayed in portions of its shards: what comes out doesn't depend on how they are shared."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from coordinator_udf.replay.inputs.broker_log import numbers_on_disk
from coordinator_udf.replay.inputs.broker_log.columns import ColumnFiles
from coordinator_udf.replay.inputs.detect import Format
from coordinator_udf.replay.judge.report import SourceReport
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.long_log import run_long_log
from coordinator_udf.replay.tasks.portions import Portion, PortionResult, run_portion
from coordinator_udf.replay.tasks.recorded import Job, TaskResult, run_recorded
from tests.conftest import shared
from tests.replay.broker_log import KafkaLog, one_member


def job_for(path: Path, out: Path) -> Job:
    out.mkdir()
    options = ReplayOptions()
    return Job(
        path, "log", Format.KAFKA, (path,), (), options, out, out / "scratch", wants_lines=True, wants_differences=True
    )


def in_turn(portions: Sequence[Portion], done: Callable[[Portion], None]) -> list[PortionResult]:
    assert len(portions) > 1
    results = []
    for portion in portions:
        results.append(run_portion(portion))
        done(portion)
    return results


def in_portions(job: Job, task_lines: int) -> TaskResult:
    job.scratch.mkdir()
    return run_long_log(job, in_turn, lambda _: None, mapped=map, task_lines=task_lines)


def tables(job: Job, result: TaskResult) -> dict[str, list[Any]]:
    """The rows of all tables, in an order of their own."""
    assert result.report.failure is None, result.report.failure
    found: dict[str, list[Any]] = {}
    for file in result.files:
        rows = pq.read_table(job.out / file.table / file.name).to_pylist()
        found.setdefault(file.table, []).extend(msgspec.json.encode(row, order="sorted") for row in rows)
    return {name: sorted(rows) for name, rows in found.items()}


def lines(job: Job) -> tuple[list[bytes], ...]:
    files = (job.lines_file, job.differences_file)
    return tuple(sorted(file.read_bytes().splitlines()) for file in files if file is not None)


def counted(report: SourceReport) -> dict[str, Any]:
    """The report, its lists of lines in an order of their own."""
    found = msgspec.structs.asdict(report)
    return {name: sorted(value) if name == "explanations" else value for name, value in found.items()}


def assert_same_in_portions(path: Path, folder: Path, *sizes: int) -> None:
    whole = job_for(path, folder / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbers_on_disk, "LINES_AT_ONCE", 10**9)
        expected = run_recorded(whole)
    for size in sizes:
        job = job_for(path, folder / str(size))
        found = in_portions(job, size)
        assert counted(found.report) == counted(expected.report)
        theirs, ours = tables(whole, expected), tables(job, found)
        assert ours.keys() == theirs.keys()
        for name, rows in theirs.items():
            assert ours[name] == rows, name
        assert lines(job) == lines(whole)
        shutil.rmtree(job.out)


@pytest.mark.parametrize("at_once", [1, 7, 100, 5_000])
def test_a_column_on_disk_is_looked_at_part_by_part(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers_on_disk, "LINES_AT_ONCE", at_once)
    # A line at a time makes a pass for each of them.
    count = min(500, 60 * at_once)
    numbers = np.random.default_rng(at_once).integers(0, 40, count).cumsum() // 60

    def new(name: str, lines: int) -> numbers_on_disk.Column:
        return numbers_on_disk.ColumnOnDisk.new(tmp_path / name, lines)

    column = new("numbers", len(numbers))
    column[:] = numbers
    runs = list(numbers_on_disk.runs_of(column))
    assert np.array_equal(np.concatenate([part for _, part in runs]), numbers)
    assert [first for first, _ in runs] == [0, *np.cumsum([len(part) for _, part in runs])[:-1]]
    assert all(before[-1] != after[0] for (_, before), (_, after) in pairwise(runs))
    keys = new("keys", len(numbers))
    keys[:] = np.roll(numbers, 200) % 97
    places = numbers_on_disk.sorted_places(keys, new)
    assert np.array_equal(places[:], np.argsort(keys[:], kind="stable"))


def test_a_log_that_breaks_off_as_it_is_put_on_disk_leaves_no_file_open(tmp_path: Path) -> None:
    columns = ColumnFiles(tmp_path)
    with pytest.raises(OSError, match="the disk is full"), columns:
        raise OSError("the disk is full")
    assert len(columns._files) > 5
    assert all(file.closed for file in columns._files)


def test_columns_that_cannot_all_be_made_leave_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[BinaryIO] = []

    def limited(path: Path, mode: str) -> BinaryIO:
        if len(made) == 5:
            raise OSError("too many open files")
        made.append(open(path, "wb"))  # noqa: PTH123, SIM115 - what is replaced is Path.open
        return made[-1]

    monkeypatch.setattr(Path, "open", limited)
    with pytest.raises(OSError, match="too many open files"), ColumnFiles(tmp_path):
        pass
    assert [file.closed for file in made] == [True] * 5


#: Lists of all groups, groups described and deleted together; a broker's restart; transactions; nothing explained.
LOGS = ("admin-ops", "expiry", "broker-restart", "txn", "subscriptions")


@pytest.mark.parametrize("name", LOGS)
def test_the_same_comes_out_however_shards_are_shared(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that these logs' numbers are looked at in many parts.
    monkeypatch.setattr(numbers_on_disk, "LINES_AT_ONCE", 300)
    assert_same_in_portions(
        shared("broker", "logs-dev", f"{name}.log.gz"), tmp_path, 1 if name == "broker-restart" else 200
    )


def test_an_answer_of_several_portions_that_differs_is_reported_once(tmp_path: Path) -> None:
    log = one_member(KafkaLog())
    groups = ["g", *(f"other-{number}" for number in range(20))]
    asked = {"groups": groups, "includeAuthorizedOperations": False}
    dead = {
        "errorCode": 0, "groupState": "Dead", "protocolType": "", "protocolData": "",
        "members": [], "authorizedOperations": -(2**31),
    }  # fmt: skip
    answers = [{**dead, "groupId": group} for group in groups]
    answers[7] = {**answers[7], "groupState": "Stable"}
    log.add("DESCRIBE_GROUPS", asked, {"throttleTimeMs": 0, "groups": answers}, arrives=4_500, version=5)
    log.add("LIST_GROUPS", {"statesFilter": [], "typesFilter": []}, {"throttleTimeMs": 3, "errorCode": 0, "groups": []},
            arrives=4_600, version=5)  # fmt: skip
    path = log.write(tmp_path / "log")
    assert_same_in_portions(path, tmp_path, 1)
    report = in_portions(job_for(path, tmp_path / "again"), 1).report
    assert report.different["answer DescribeGroups NONE"] == 1
    assert report.different["answer ListGroups NONE"] == 1
