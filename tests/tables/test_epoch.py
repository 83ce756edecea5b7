"""A coordinator that was taken over from writes nothing any more, wherever in its writing it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from coordinator_udf.tables import delta, epoch
from coordinator_udf.tables.assignment_join import complete_assignments
from coordinator_udf.tables.delta import WRITE_ORDER, OutputTables, compact
from coordinator_udf.tables.epoch import EPOCH_PROPERTY, FencedError, epoch_of
from coordinator_udf.tables.parquet_files import TableFile, TableFiles
from coordinator_udf.tables.rows import to_tables
from tests.streaming.outputs import outputs, record, response, row


def batch(number: int) -> dict[str, pa.Table]:
    """Rows of every table."""
    said = outputs(
        record({"type": "GroupMetadata", "group": "g"}, None, number),
        response("Heartbeat", {"errorCode": 0}, request_id=f"{number}"),
        row("rejected", api="X", reason="none", raw="{}"),
        row("transitions", group_id="g", to_state="Empty", generation=0, rule="LOADED"),
    )
    return to_tables(complete_assignments(said, lambda records: {}))


def in_files(folder: Path | str, number: int) -> dict[str, list[TableFile]]:
    """The same rows, as the tasks of a large batch leave them: in files that no table has yet."""
    files = TableFiles(str(folder))
    files.write(batch(number))
    return {file.table: [file] for file in files.close()}


def claimed(folder: Path) -> OutputTables:
    tables = OutputTables(str(folder))
    tables.claim()
    return tables


def versions(folder: Path) -> dict[str, int]:
    return {name: DeltaTable(str(folder / name)).version() for name in WRITE_ORDER}


class Interleaved:
    """Lets another coordinator take over at the n-th step of a writer, or between two claims of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, act: Callable[[], None]) -> None:
        self._left = at
        self._act = act
        self.has_acted = False
        self._wrap(monkeypatch, delta, "refuse_fenced")
        self._wrap(monkeypatch, delta, "_commit")

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        function = getattr(module, name)

        def step(*given: Any, **named: Any) -> Any:
            # Before and after each of them: between the look at the epoch and the commit, too.
            self._step()
            result = function(*given, **named)
            self._step()
            return result

        monkeypatch.setattr(module, name, step)

    def _step(self) -> None:
        self._left -= 1
        if self._left == -1:
            self._act()
            self.has_acted = True


#: Of each of four tables: before and after the look at the epoch, before and after the commit.
STEPS = 16


@pytest.mark.parametrize("at", range(STEPS))
@pytest.mark.parametrize("is_again", [False, True], ids=["other query", "same query"])
@pytest.mark.parametrize("is_large", [False, True], ids=["rows", "files"])
def test_no_commit_gets_through_after_a_takeover_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, is_again: bool, is_large: bool
) -> None:
    older = claimed(tmp_path)
    older.write(batch(0), "query", 0)
    found: dict[str, int] = {}
    newer: list[OutputTables] = []

    def take_over() -> None:
        newer.append(claimed(tmp_path))
        found.update(versions(tmp_path))

    with monkeypatch.context() as patch:
        steps = Interleaved(patch, at, take_over)
        try:
            older.write(in_files(tmp_path, 1) if is_large else batch(1), "query", 1)
            is_whole = True
        except FencedError:
            is_whole = False
    assert steps.has_acted
    assert is_whole == (at == STEPS - 1), "only a batch whose last commit came before is a whole one"
    assert versions(tmp_path) == found, "nothing was committed since"
    # Whoever took over goes on with the same batch, or with its own.
    newer[0].write(batch(1), "query" if is_again else "another", 1)
    with pytest.raises(FencedError, match="its epoch is 2, this one's 1"):
        older.write(batch(2), "query", 2)
    rows = {name: newer[0].table(name).count() for name in WRITE_ORDER}
    if is_again:
        assert rows == dict.fromkeys(WRITE_ORDER, 2), "each batch once, whoever wrote it"


def test_of_two_that_take_over_at_once_one_gets_all_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raise_epoch = epoch.raise_epoch
    for at in range(len(WRITE_ORDER)):
        first, second = OutputTables(str(tmp_path)), OutputTables(str(tmp_path))
        left = at

        def then_the_other(table: DeltaTable, number: int, second: OutputTables = second) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                with monkeypatch.context() as other:
                    other.setattr(epoch, "raise_epoch", raise_epoch)
                    second.claim()
            raise_epoch(table, number)

        with monkeypatch.context() as patch:
            patch.setattr(epoch, "raise_epoch", then_the_other)
            with pytest.raises(FencedError):
                first.claim()
        assert {epoch_of(second.table(name)) for name in WRITE_ORDER} == {second.epoch}
        second.write(batch(at), f"query {at}", 0)


def test_a_takeover_beside_a_busy_writer_gets_through(tmp_path: Path) -> None:
    older = claimed(tmp_path)
    table = DeltaTable(str(tmp_path / "group_responses"))
    older.write(batch(0), "query", 0)
    epoch.raise_epoch(table, 2)
    assert epoch_of(DeltaTable(str(tmp_path / "group_responses"))) == 2


def test_a_compaction_that_was_begun_before_a_takeover_fails(tmp_path: Path) -> None:
    older = claimed(tmp_path)
    for number in range(3):
        older.write(batch(number), "query", number)
    table = DeltaTable(str(tmp_path / "group_responses"))
    claimed(tmp_path)
    found = versions(tmp_path)
    with pytest.raises(CommitFailedError):
        compact(table)
    older._compact(["group_responses"])
    assert versions(tmp_path) == found


def test_tables_of_before_have_epoch_0_and_their_properties_stay(tmp_path: Path) -> None:
    tables = OutputTables(str(tmp_path))
    before = tables.table("group_responses").metadata().configuration
    assert EPOCH_PROPERTY not in before
    tables.write(batch(0), "query", 0)
    assert claimed(tmp_path).epoch == 1
    assert DeltaTable(str(tmp_path / "group_responses")).metadata().configuration == before | {EPOCH_PROPERTY: "1"}
    tables.write(batch(1), "query", 1)
    assert tables.table("group_responses").count() == 2, "who writes without an epoch isn't fenced"
