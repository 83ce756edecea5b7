from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator_udf.streaming.stored_state import from_stored, to_stored
from schemas.outputs import SHARD_STATE

ROWS = st.tuples(st.integers(0, 2**31 - 1), st.none() | st.integers(0, 2**62), st.binary(), st.binary())


@given(st.lists(st.tuples(st.integers(0, 2), ROWS), min_size=1))
def test_whatever_rows_a_process_sees_each_is_read_as_it_was_kept(
    seen: list[tuple[int, tuple[int, int | None, bytes, bytes]]],
) -> None:
    stored = [(partition, row, to_stored(partition, row)) for partition, row in seen]
    # A batch that runs again brings an older row than the process saw last, and another process wrote some.
    for partition, row, kept in [*stored, *reversed(stored)]:
        assert from_stored(partition, kept) == row
        assert to_stored(partition, row) == kept


def test_it_is_what_the_state_store_takes() -> None:
    kept = to_stored(0, (9, None, b"\0\xff", b"\x80"))
    assert [type(value).__name__ for value in kept] == ["int", "NoneType", "str", "str"]
    assert [field.dataType.typeName() for field in SHARD_STATE] == ["integer", "long", "string", "string"]
    assert all(text.isascii() for text in kept[2:]), "a character that takes two bytes costs Spark more"
