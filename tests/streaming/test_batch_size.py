"""How large a micro-batch is, by what the checkpoint says that its source has planned."""

from __future__ import annotations

import json
from pathlib import Path

from coordinator_udf.streaming.batch_size import PlannedRows
from coordinator_udf.streaming.checkpoint_files import LocalFiles


def plan(checkpoint: Path, batch: int, *offsets: str) -> None:
    """As Spark writes it: a version, the batch's facts, and where each source ends."""
    path = checkpoint / "offsets" / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *offsets]), "utf-8")


def between(start: str | None, end: str) -> int | None:
    begins = 0 if start is None else json.loads(start)["append"]
    return int(json.loads(end)["append"] - begins)


def test_each_batch_begins_where_the_one_before_ended(tmp_path: Path) -> None:
    planned = PlannedRows(LocalFiles(str(tmp_path)), between)
    for batch, end in enumerate((5, 5, 105)):
        plan(tmp_path, batch, json.dumps({"append": end}))
    assert [planned.of(batch) for batch in range(3)] == [5, 0, 100]
    # After a start it goes on anywhere, also with a batch that ran before.
    assert PlannedRows(LocalFiles(str(tmp_path)), between).of(2) == 100


def test_the_log_is_the_last_of_several_sources(tmp_path: Path) -> None:
    planned = PlannedRows(LocalFiles(str(tmp_path)), lambda start, end: None)
    plan(tmp_path, 0, '{"tick":1}', '{"logOffset":3}')
    plan(tmp_path, 1, '{"tick":2}', '{"logOffset":3}')
    plan(tmp_path, 2, '{"tick":3}', '{"logOffset":4}')
    # Ticks alone are a small batch, and how many rows files have isn't known.
    assert [planned.of(batch) for batch in range(3)] == [None, 0, None]


def test_what_the_checkpoint_does_not_say_is_not_known(tmp_path: Path) -> None:
    assert PlannedRows(LocalFiles(str(tmp_path)), between).of(7) is None
