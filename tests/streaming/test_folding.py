"""The embedded log is folded into its history: each row is in one of them, and read once, whatever dies when."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coordinator_udf.log import stored_appends
from coordinator_udf.log.dataframe import _read_snapshot
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.history import LogHistory, next_offsets
from coordinator_udf.log.record_batches import to_columns
from coordinator_udf.log.rows import control_rows
from coordinator_udf.log.stored_appends import TrimmedError
from coordinator_udf.streaming.checkpoint import CheckpointError, append_needed, committed_append
from coordinator_udf.streaming.checkpoint_files import LocalFiles
from coordinator_udf.streaming.folding import Folder, FoldError, claim_history, fold
from tests.conftest import ROOT
from tests.waiting import wait

PARTITIONS = 3

#: Folds once; is killed after a piece was written, before it leaves the log, or in the middle of leaving.
DIES = """
import os, signal, sys
from pathlib import Path
from coordinator_udf.streaming import folding
from coordinator_udf.log.embedded import EmbeddedLog
root, when = Path(sys.argv[1]), sys.argv[2]
log = EmbeddedLog.open(root / "log")
history = folding.claim_history(log, str(root / "tables"))
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
folding._PIECE_ROWS = 30
if when == "written":
    log.trim = lambda before, rows=None: die() if before > 10 else 0
elif when == "leaving":
    log._appends._give_back = die
folding.fold(log, history, 40)
"""


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    log = EmbeddedLog.create(tmp_path / "log", PARTITIONS)
    append(log, 50)
    return log


def append(log: EmbeddedLog, appends: int) -> None:
    for number in range(appends):
        rows = control_rows(partitions=PARTITIONS, log_ts=number, api="Tick", request_id=f"r{number}")
        log.append(rows[number % PARTITIONS :])


def in_history(tmp_path: Path) -> list[tuple[int, int]]:
    rows = DeltaTable(str(tmp_path / "tables" / "request_log")).to_pyarrow_table().to_pylist()
    return sorted((row["partition"], row["offset"]) for row in rows)


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in rows)


def in_log(log: EmbeddedLog) -> list[tuple[int, int]]:
    extent = log.extent()
    return places([row for batch in log.read(extent.first, extent.next) for row in batch.to_pylist()])


def dense(log: EmbeddedLog) -> list[tuple[int, int]]:
    """The places of all rows that there ever were."""
    return [(partition, offset) for partition, end in enumerate(log.snapshot().next_offsets) for offset in range(end)]


def test_folding_moves_rows_and_folding_again_moves_none(log: EmbeddedLog, tmp_path: Path) -> None:
    history = claim_history(log, str(tmp_path / "tables"))
    assert fold(log, history, 20) == 20
    assert log.extent().first == 20
    assert history.until() == 20
    assert fold(log, history, 20) == 0
    assert fold(EmbeddedLog.open(log.path), claim_history(log, str(tmp_path / "tables")), 35) == 15
    assert sorted(in_history(tmp_path) + in_log(log)) == dense(log)
    assert log.rows_until(35) == len(in_history(tmp_path))
    assert log.end_within(35, 50, 7) == 39, "a bound by rows goes by rows of the log, not of its history"
    rows = DeltaTable(history.uri).to_pyarrow_table().to_pylist()
    assert {row["source"] for row in rows} == {"live"}
    assert max(row["offset"] for row in rows if row["partition"] == 0) < log.snapshot().first_offsets[0]


def test_a_fold_that_died_between_its_steps_is_completed(log: EmbeddedLog, tmp_path: Path) -> None:
    history = claim_history(log, str(tmp_path / "tables"))
    history.append(pa.Table.from_batches(log.read(0, 10)), 10)
    snapshot = log.snapshot()
    now = [row for batch in _read_snapshot(log.path, snapshot, iter(())) for row in batch.to_pylist()]
    before = [row for batch in history.rows([0] * PARTITIONS, snapshot.first_offsets) for row in batch.to_pylist()]
    assert places(before + now) == dense(log), "what is in both is read once"
    assert fold(log, history, 30) == 30
    assert sorted(in_history(tmp_path) + in_log(log)) == dense(log)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds files by /proc")
def test_what_leaves_the_log_is_on_the_disk_first(
    log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[Path] = set()
    first: list[int] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        first.append(log.extent().first)
        fsync(descriptor)

    history = claim_history(log, str(tmp_path / "tables"))
    monkeypatch.setattr(os, "fsync", noting)
    fold(log, history, 20)
    table = tmp_path / "tables" / "request_log"
    written = {table, table / "_delta_log", table / "_delta_log" / f"{1:020}.json", *table.glob("*.parquet")}
    assert len(written) == 4
    assert synced == written
    assert set(first) == {0}, "the log still had all of it"


@pytest.mark.parametrize("when", ["written", "leaving"])
def test_kill_9_in_the_middle_of_a_fold_loses_and_doubles_nothing(log: EmbeddedLog, tmp_path: Path, when: str) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DIES, str(tmp_path), when],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    history = claim_history(log, str(tmp_path / "tables"))
    assert 0 < history.until() < 40
    fold(log, history, 40)
    assert log.extent().first == 40
    assert sorted(in_history(tmp_path) + in_log(log)) == dense(log)


def test_who_reads_while_the_log_is_folded_reads_each_row_once(log: EmbeddedLog, tmp_path: Path) -> None:
    history = claim_history(log, str(tmp_path / "tables"))
    fold(log, history, 5)
    snapshot = log.snapshot()
    expected = in_log(log)
    append(log, 600)
    fold(log, history, 20)
    rows = [row for batch in _read_snapshot(log.path, snapshot, iter(())) for row in batch.to_pylist()]
    assert places(rows) == expected, "a part had been folded when the reader began"
    fold(log, history, 60)
    rows = [row for batch in _read_snapshot(log.path, snapshot, iter(())) for row in batch.to_pylist()]
    assert places(rows) == expected, "all of it had been"
    snapshot = log.snapshot()
    expected = in_log(log)
    reader = _read_snapshot(log.path, snapshot, iter(()))
    reading = threading.Thread(target=lambda: rows.extend(row for batch in reader for row in batch.to_pylist()))
    rows.clear()
    reading.start()
    for before in range(100, 600, 50):
        fold(log, history, before)
    reading.join()
    assert places(rows) == expected, "it was folded while the reader read"


def test_rows_that_are_at_hand_tell_the_same_as_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_appends, "_TRIMMED_AT_ONCE", 10)
    found = []
    for name in ("at hand", "read again", "too many at hand"):
        log = EmbeddedLog.create(tmp_path / name, PARTITIONS)
        ticks = control_rows(partitions=PARTITIONS, log_ts=1, api="Tick")
        log.append_all(to_columns(ticks[number % PARTITIONS :]) for number in range(50))
        log.trim(7)
        rows = None if name == "read again" else pa.Table.from_batches(list(log.read(7, 43)))
        first = 15 if name == "too many at hand" else 7
        log.trim(first)
        assert log.trim(43, rows) == 43 - first
        found.append(log.snapshot())
        log.close()
    assert found[0] == found[1] == found[2]
    assert found[0].first_offsets[0] < found[0].first_offsets[1] < found[0].first_offsets[2]


def test_the_file_gets_smaller(tmp_path: Path) -> None:
    log = EmbeddedLog.create(tmp_path / "log", PARTITIONS)
    append(log, 1_500)
    history = claim_history(log, str(tmp_path / "tables"))
    size = log.path.stat().st_size
    fold(log, history, 1_450)
    # What was given back leaves the file when SQLite moves its journal into it.
    log.close()
    assert log.path.stat().st_size < size / 5


def test_a_new_log_goes_on_where_the_history_ends(log: EmbeddedLog, tmp_path: Path) -> None:
    fold(log, claim_history(log, str(tmp_path / "tables")), 50)
    uri = str(tmp_path / "tables" / "request_log")
    assert next_offsets(uri) == list(log.snapshot().next_offsets)
    log.path.unlink()
    other = EmbeddedLog.create(tmp_path / "log2", PARTITIONS, first_offsets=next_offsets(uri))
    append(other, 10)
    history = claim_history(other, str(tmp_path / "tables"))
    fold(other, history, 4)
    assert sorted(in_history(tmp_path) + in_log(other)) == dense(other)


def test_what_would_mix_logs_or_lose_rows_is_refused(log: EmbeddedLog, tmp_path: Path) -> None:
    tables = str(tmp_path / "tables")
    history = claim_history(log, tables)
    fold(log, history, 20)
    with pytest.raises(FoldError, match=r"before append 20 is in .*tables/request_log, but the tables are in .*others"):
        claim_history(log, str(tmp_path / "others"))
    with pytest.raises(FoldError, match="has the rows of another request log"):
        claim_history(EmbeddedLog.create(tmp_path / "new", PARTITIONS), tables)
    with pytest.raises(TrimmedError, match="start it with --recover-from-offsets and a new --checkpoint"):
        list(log.read(3, 30))
    ahead = DeltaTable(history.uri).to_pyarrow_table()
    LogHistory(history.uri, history.log_id).append(ahead.slice(0, 1), 1_000)
    with pytest.raises(FoldError, match="it is an older copy"):
        claim_history(log, tables)


def test_a_root_may_be_moved(log: EmbeddedLog, tmp_path: Path) -> None:
    root = tmp_path / "a"
    (root / "tables").mkdir(parents=True)
    moved = EmbeddedLog.create(root / "log", PARTITIONS)
    append(moved, 20)
    fold(moved, claim_history(moved, str(root / "tables")), 10)
    moved.close()
    root.rename(tmp_path / "b")
    again = EmbeddedLog.open(tmp_path / "b" / "log")
    history = claim_history(again, str(tmp_path / "b" / "tables"))
    assert fold(again, history, 15) == 5
    assert history.until() == 15


def write_checkpoint(folder: Path, ends: dict[int, int], committed: list[int]) -> None:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file in (folder / name).iterdir():
            file.unlink()
    for batch, end in ends.items():
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps({"append": end})}')
    for batch in committed:
        (folder / "commits" / str(batch)).write_text("v1\n{}")


def test_only_what_no_retained_batch_can_need_is_folded(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    assert append_needed(LocalFiles(str(checkpoint))) is None
    write_checkpoint(checkpoint, {0: 5}, [])
    assert append_needed(LocalFiles(str(checkpoint))) is None
    assert committed_append(LocalFiles(str(checkpoint))) is None
    write_checkpoint(checkpoint, {0: 5, 1: 9}, [0])
    assert append_needed(LocalFiles(str(checkpoint))) == 5
    write_checkpoint(checkpoint, {7: 50, 8: 60, 9: 70, 10: 80}, [6, 7, 8, 9])
    assert append_needed(LocalFiles(str(checkpoint))) == 50
    assert committed_append(LocalFiles(str(checkpoint))) == 70
    (checkpoint / "offsets" / "7").write_text("v9")
    with pytest.raises(CheckpointError, match="offsets/7 is not as expected"):
        append_needed(LocalFiles(str(checkpoint)))


def test_the_folder_waits_for_enough_and_tells_what_is_wrong_until_it_is_over(
    log: EmbeddedLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = tmp_path / "checkpoint"
    write_checkpoint(checkpoint, {3: 40, 4: 50}, [3])
    folder = Folder(log, str(tmp_path / "tables"), LocalFiles(str(checkpoint)), log.rows_until(40) + 1, interval_s=0.02)
    assert folder.fold_due() == 0
    folder.close()
    folder = Folder(log, str(tmp_path / "tables"), LocalFiles(str(checkpoint)), log.rows_until(40), interval_s=0.02)
    (checkpoint / "offsets" / "3").write_text("v9")
    folder.start()
    wait(lambda: "the request log is not folded" in caplog.text, "it says so")
    assert (folder.trouble or "").startswith("CheckpointError: ")
    assert log.extent().first == 0
    write_checkpoint(checkpoint, {3: 40, 4: 50}, [3])
    # There is no trouble either while the files of the checkpoint are gone and not yet written again.
    wait(lambda: log.extent().first == 40, "the log is folded again")
    wait(lambda: folder.trouble is None, "it says so")
    folder.close()
