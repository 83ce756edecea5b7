"""Who may take tables over, and what becomes of whom they were taken from: real processes, stopped and continued."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.rows import control_rows
from coordinator_udf.streaming import lease
from coordinator_udf.streaming.folding import claim_history, fold
from coordinator_udf.streaming.lease import LeaseWatch, StartError, exclusive_checkpoint, take_over
from coordinator_udf.tables.delta import WRITE_ORDER, OutputTables
from coordinator_udf.tables.epoch import FencedError
from coordinator_udf.tables.places import files_of
from tests.conftest import ROOT
from tests.waiting import PATIENCE_S, wait

#: Writes batch after batch, and says of each that it is written, until it can't any more.
WRITER = """
import sys
from coordinator_udf.streaming import lease
from coordinator_udf.streaming.failures import told_in_words
from coordinator_udf.tables.delta import OutputTables
from tests.tables.test_epoch import batch
lease.RENEW_EVERY_S = 0.1
with told_in_words("coordinator"):
    tables = OutputTables(sys.argv[1])
    with lease.take_over(tables, sys.argv[1] + "/checkpoint") as mine:
        with lease.exclusive_checkpoint(sys.argv[1] + "/checkpoint", mine):
            for number in range(int(sys.argv[2]), 1_000_000):
                tables.write(batch(number), "query", number)
                print(number, flush=True)
"""


def raises(kind: type[Exception], act: Callable[[], None]) -> bool:
    try:
        act()
    except kind:
        return True
    return False


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.1)
    monkeypatch.setattr(lease, "SILENT_AFTER_S", 2.0)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()


@pytest.mark.parametrize("seed", range(3))
def test_who_was_stopped_and_taken_over_from_ends_with_an_error(
    tmp_path: Path, writer: subprocess.Popen[str], seed: int
) -> None:
    time.sleep(random.Random(seed).random() / 10)
    writer.send_signal(signal.SIGSTOP)
    checkpoint = str(tmp_path / "checkpoint")
    tables = OutputTables(str(tmp_path))
    with take_over(tables, checkpoint) as mine, exclusive_checkpoint(checkpoint, mine):
        assert mine.epoch == 2
        found = {name: tables.table(name).version() for name in WRITE_ORDER}
        writer.send_signal(signal.SIGCONT)
        said, error = writer.communicate(timeout=PATIENCE_S)
        assert writer.returncode == 1
        assert error.startswith("coordinator: another coordinator has taken over the table"), error
        assert {name: tables.table(name).version() for name in WRITE_ORDER} == found
        rows = {name: DeltaTable(str(tmp_path / name)).count() for name in WRITE_ORDER}
        told = len(said.split()) + 1
        assert told <= rows["group_responses"] <= rows["consumer_offsets"] <= told + 1, "what was told is there"
        mine.raise_if_lost(look=True)


def test_who_lives_is_not_taken_over_from(
    tmp_path: Path, writer: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "SILENT_AFTER_S", PATIENCE_S)
    with pytest.raises(StartError, match=rf"another coordinator runs on the folder of tables .*process {writer.pid} "):
        take_over(OutputTables(str(tmp_path)), str(tmp_path / "checkpoint"))
    assert writer.poll() is None


def test_who_died_is_taken_over_from_at_once(
    tmp_path: Path, writer: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.kill()
    writer.wait()
    monkeypatch.setattr(lease, "SILENT_AFTER_S", 1e9)
    with take_over(OutputTables(str(tmp_path)), str(tmp_path / "checkpoint")) as mine:
        assert mine.before is None
    with take_over(OutputTables(str(tmp_path)), str(tmp_path / "checkpoint")) as mine:
        assert (mine.epoch, mine.before) == (3, None), "one that has ended says so"


def test_who_died_is_seen_by_all_who_ask_at_one_moment(
    tmp_path: Path, writer: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "MISSED_AFTER_S", 1e9)
    watch = LeaseWatch(str(tmp_path))
    answers: list[bool | None] = []
    assert not watch.is_coordinator_away()
    flock = fcntl.flock

    def asked_twice(descriptor: int, operation: int) -> None:
        # A gateway asks, and while it does another.
        flock(descriptor, operation)
        if not answers:
            answers.append(None)
            answers[0] = watch.is_coordinator_away()

    writer.kill()
    writer.wait()
    monkeypatch.setattr(fcntl, "flock", asked_twice)
    assert LeaseWatch(str(tmp_path)).is_coordinator_away()
    assert answers == [True]


def test_whoever_watches_a_lease_sees_who_died_stands_still_or_has_ended(
    tmp_path: Path, writer: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not LeaseWatch(str(tmp_path / "others")).is_coordinator_away()
    watch = LeaseWatch(str(tmp_path))
    assert not watch.is_coordinator_away()
    monkeypatch.setattr(lease, "MISSED_AFTER_S", 1.0)
    writer.send_signal(signal.SIGSTOP)
    wait(watch.is_coordinator_away, "the coordinator is seen to be away")
    writer.send_signal(signal.SIGCONT)
    wait(lambda: not watch.is_coordinator_away(), "it is seen to be back")
    monkeypatch.setattr(lease, "MISSED_AFTER_S", 1e9)
    writer.kill()
    writer.wait()
    assert watch.is_coordinator_away()
    with take_over(OutputTables(str(tmp_path)), str(tmp_path / "checkpoint")):
        assert not watch.is_coordinator_away()
    assert watch.is_coordinator_away()


def test_who_has_no_lock_to_show_is_watched(
    tmp_path: Path, writer: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a storage that many machines see.
    monkeypatch.setattr(lease, "is_uri", lambda _: True)
    with monkeypatch.context() as patient:
        patient.setattr(lease, "SILENT_AFTER_S", PATIENCE_S)
        with pytest.raises(StartError, match="another coordinator runs on the folder of tables"):
            take_over(OutputTables(str(tmp_path)), "s3://bucket/checkpoint")
    writer.kill()
    writer.wait()
    with take_over(OutputTables(str(tmp_path)), "s3://bucket/checkpoint") as mine:
        assert mine.before is not None
        assert mine.before.pid == writer.pid


def test_an_idle_coordinator_notices_too(tmp_path: Path) -> None:
    tables, newer = OutputTables(str(tmp_path)), OutputTables(str(tmp_path))
    with take_over(tables, "checkpoint") as mine:
        mine.raise_if_lost(look=True)
        with lease.Lease(newer, "checkpoint", None):
            wait(lambda: raises(FencedError, mine.raise_if_lost), "it sees that it was taken over from")
    files = files_of(str(tmp_path))
    holder = lease._read(files)
    assert holder is not None
    assert (holder.epoch, holder.is_over) == (2, True), "who lost it doesn't say that nobody has it"


def test_a_checkpoint_is_locked_again_when_who_held_it_is_gone(tmp_path: Path, writer: subprocess.Popen[str]) -> None:
    writer.send_signal(signal.SIGSTOP)
    checkpoint = str(tmp_path / "checkpoint")
    with take_over(OutputTables(str(tmp_path)), checkpoint) as mine, exclusive_checkpoint(checkpoint, mine):
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        others = OutputTables(str(tmp_path / "others"))
        with take_over(others, checkpoint) as other:

            def use() -> None:
                with exclusive_checkpoint(checkpoint, other):
                    pass

            wait(lambda: raises(StartError, use), "the checkpoint is locked")


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "old"])
def test_a_log_that_another_coordinator_folds_is_not_folded_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    log = EmbeddedLog.create(tmp_path / "log", 2)
    for number in range(20):
        log.append(control_rows(partitions=2, log_ts=number, api="Tick"))
    tables = str(tmp_path / "tables")
    older = claim_history(log, tables, 1)
    if is_there:
        fold(log, older, 4)
    newer = claim_history(log, tables, 2)
    append = older.append

    def late(rows: pa.Table, until: int) -> None:
        fold(EmbeddedLog.open(log.path), newer, 8)
        append(rows, until)

    monkeypatch.setattr(older, "append", late)
    with pytest.raises(FencedError):
        fold(log, older, 12)
    fold(log, newer, 20)
    found = DeltaTable(newer.uri).to_pyarrow_table().select(["partition", "offset"]).to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in found) == [(p, o) for p in range(2) for o in range(20)]
