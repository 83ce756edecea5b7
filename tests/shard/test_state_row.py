"""The format of the state row is that of its version: a checkpoint outlives the code that wrote it."""

from __future__ import annotations

import pytest

from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.state_row.codec import STATE_VERSION, StateVersionError, decode, encode
from tests.shard.state_rows import KEPT, described, format_text, is_renamed, kept

HINT = (
    "raise STATE_VERSION in shard/state_row/codec.py, then run .venv/bin/python -m tests.shard.state_rows "
    "(with the argument renamed, and the version as it is, where fields have new names and nothing else)"
)


def test_the_structs_have_the_fields_of_their_version() -> None:
    assert format_text() == (KEPT / f"{STATE_VERSION}.txt").read_text("utf-8"), HINT


def test_a_new_name_is_no_new_format_but_for_what_is_written_by_name() -> None:
    text = (KEPT / f"{STATE_VERSION}.txt").read_text("utf-8")
    assert is_renamed(text.replace("next_seq: int", "following_seq: int"), text)
    assert not is_renamed(text.replace("next_seq: int", "next_seq: str"), text)
    assert not is_renamed(text.replace("next_seq: int", "next_seq: int\n    more: int"), text)
    # Topics are written with the names of their fields.
    assert not is_renamed(text.replace("partitions: int\n    id:", "count: int\n    id:"), text)


def test_a_row_that_was_kept_is_read_as_it_was_written() -> None:
    golden = kept(STATE_VERSION)
    shard = decode(0, Settings(), golden.row)
    assert described(shard) == golden.described, HINT
    kinds = {group["type"] for group in golden.described["groups"]}
    assert kinds == {"classic", "consumer"}
    assert any(group.get("members") for group in golden.described["groups"])
    assert any(group["offsets"] for group in golden.described["groups"])


def test_it_is_written_again_to_the_byte() -> None:
    golden = kept(STATE_VERSION)
    shard = decode(0, Settings(), golden.row)
    # All that was asked for is encoded anew.
    assert list(shard.store.groups.values())
    assert list(shard.store.offsets.committed.values())
    assert encode(shard) == golden.row, HINT


def test_rows_of_other_versions_are_refused() -> None:
    _, deadline_ms, hot, cold = kept(STATE_VERSION).row
    others = [kept(int(path.stem)).row for path in KEPT.glob("*.json") if path.stem != str(STATE_VERSION)]
    for row in (*others, (STATE_VERSION - 1, deadline_ms, hot, cold), (STATE_VERSION + 1, deadline_ms, hot, cold)):
        with pytest.raises(StateVersionError, match=f"version {row[0]}"):
            decode(0, Settings(), row)
