"""The edge of a shard for whoever holds the request log in Arrow: record batches in, record batches out.

Does what `shard.run.process_columns` does. Of the heartbeats, which are nearly all rows, only the columns that decide
about them become Python objects, and their answers are taken from the request's own columns.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.protocol.answer_json import heartbeat_json
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.shard.heartbeat_fast_path import BEAT_COLUMNS, Beat, HeartbeatAnswers, PlainBeats
from coordinator_udf.shard.outputs import NOTHING, OUTPUTS, nulls, repeated, to_table
from coordinator_udf.shard.run import (
    LAST_TIME_MS,
    find_unreadable,
    process,
    wrong_version,
)
from coordinator_udf.shard.shard import Shard

#: What an answer to a heartbeat takes over from its request.
_ANSWERED: Final = ["partition", "request_id", "api_version", "group_id", "member_id", "parts"]

#: What decides about a heartbeat that is handled together with others.
_DECIDES: Final = ("log_ts", "group_id", "member_id", "generation_or_epoch")

#: Columns of texts that are hardly ever the same twice.
_DIFFERENT: Final = frozenset({"request_id", "body"})

#: Up to so many rows it isn't worth while to look for texts that are the same.
_FEW: Final = 16

#: From how many plain heartbeats on it is worth while to look at them all at once, and to how many other rows.
BULK_ROWS: Final = 100
_OTHERS_A_BEAT: Final = 3


#: Makes a request of all its values without the detour over `Request._make`.
_new_request = partial(tuple.__new__, Request)


class Outputs(NamedTuple):
    """What a shard says, columns of SHARD_OUTPUT.

    Attributes:
        said: all but the heartbeats' answers: one kind after the other, each in the order of ``seq``.
        heartbeats: the answers to heartbeats that took the short way, in the order of ``seq``.
    """

    said: pa.Table
    heartbeats: pa.Table

    def together(self) -> pa.Table:
        """Both parts in one table."""
        return pa.concat_tables([self.said, self.heartbeats])


def process_batch(shard: Shard, source: str, batch: pa.RecordBatch, *, short_way: bool = True) -> Outputs:
    """Handles rows of the request log in order.

    Args:
        shard: the shard that the rows belong to.
        source: the coordinator that the rows belong to; stands in every output.
        batch: columns of REQUEST_LOG, ``source`` not needed.
        short_way: False to let every heartbeat take the long way (for tests: both must say the same).
    """
    with _no_garbage_collection():
        # In a call of its own, so that what it made is gone before there is a search again.
        return _process(shard, source, batch, short_way=short_way)


def _process(shard: Shard, source: str, batch: pa.RecordBatch, *, short_way: bool) -> Outputs:
    said, answers = process(shard, BatchRows(batch), short_way=short_way)
    return Outputs(to_table(said, source, shard.partition), _answers(source, batch, answers))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Puts the search for cyclic garbage off: among objects that nearly all stay alive it took half of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class BatchRows:
    """Rows of a record batch. Those that are no plain heartbeats are made into Python values at once."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch.select(list(Request._fields))
        self._plain = _where(pc.equal(batch.column("api"), "Heartbeat"))
        if batch.column("body").null_count < batch.num_rows:
            self._plain &= np.asarray(pc.is_null(batch.column("body")))
        #: Plain heartbeats that say who they are of, and are of no static member.
        self._simple = self._plain.copy()
        if batch.column("group_instance_id").null_count < batch.num_rows:
            self._simple &= np.asarray(pc.is_null(batch.column("group_instance_id")))
        for name in ("group_id", "member_id", "generation_or_epoch", "log_ts"):
            if batch.column(name).null_count:
                self._simple &= np.asarray(pc.is_valid(batch.column(name)))
        self._others: dict[int, Request] = {}
        self._decode(np.flatnonzero(~self._plain))

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def row(self, index: int) -> Request:
        """One row."""
        found = self._others.get(index)
        if found is None:
            # A heartbeat after all.
            found = self._others[index] = Request._make([column[index].as_py() for column in self._batch.columns])
        return found

    def _decode(self, rows: np.ndarray) -> None:
        if len(rows) == 0:
            return
        taken = self._batch if len(rows) == len(self) else self._batch.take(pa.array(rows))
        columns = [
            _python(column) if name not in _DIFFERENT else list(column.to_pylist())
            for name, column in zip(Request._fields, taken.columns, strict=True)
        ]
        requests = map(_new_request, zip(*columns, strict=True))
        self._others.update(zip(rows.tolist(), requests, strict=True))

    def has_plain(self, start: int, end: int) -> bool:
        """Whether a row of a range is a heartbeat whose columns say all."""
        return bool(self._plain[start:end].any())

    def beats(self, start: int, end: int) -> Iterator[Beat]:
        """The rows in a range, as heartbeats."""
        rows = self._batch.slice(start, end - start)
        convert = _python if end - start > _FEW else pa.Array.to_pylist
        columns = [convert(rows.column(name)) for name in BEAT_COLUMNS]
        return zip(self._plain[start:end].tolist(), *columns, strict=True)

    def plain_beats(self, start: int, end: int) -> PlainBeats | None:
        """The heartbeats in a range that can be handled together; None if they are few."""
        places = np.flatnonzero(self._simple[start:end])
        if len(places) < max(BULK_ROWS, (end - start) // _OTHERS_A_BEAT):
            return None
        rows = self._batch.slice(start, end - start)
        columns = [rows.column(name) for name in _DECIDES]
        if len(places) < len(rows):
            columns = [column.take(pa.array(places)) for column in columns]
        times, group_ids, member_ids, generation_ids = columns
        groups = group_ids.dictionary_encode()
        return PlainBeats(
            start + places,
            np.asarray(times),
            groups.dictionary.to_pylist(),
            np.asarray(groups.indices),
            member_ids,
            np.asarray(generation_ids),
        )

    def unreadable(self) -> dict[int, str]:
        """The rows that don't have what a handler counts on, with what is wrong; in order."""
        columns = [self._batch.column(name) for name in ("partition", "offset", "log_ts", "api")]
        times = pc.min_max(columns[2]).as_py()
        timely = 0 <= (times["min"] or 0) <= (times["max"] or 0) <= LAST_TIME_MS
        is_whole = timely and not any(column.null_count for column in columns)
        if is_whole and not any(wrong_version(*pair) for pair in self._versions()):
            return {}
        return find_unreadable({name: self._batch.column(name).to_pylist() for name in Request._fields})

    def _versions(self) -> set[tuple[str, int | None]]:
        """The different pairs of an API and a version."""
        apis = self._batch.column("api").dictionary_encode()
        versions = self._batch.column("api_version").dictionary_encode(null_encoding="encode")
        # Both places in one number: there are few of them.
        both = np.asarray(apis.indices, np.int64) << 32 | np.asarray(versions.indices, np.int64)
        names, numbers = apis.dictionary.to_pylist(), versions.dictionary.to_pylist()
        return {(names[pair >> 32], numbers[pair & 0xFFFFFFFF]) for pair in np.unique(both).tolist()}


def _where(condition: pa.Array) -> np.ndarray:
    """Where a condition holds and is not null."""
    return np.array(pc.fill_null(condition, False) if condition.null_count else condition)


def _python(column: pa.Array) -> list[Any]:
    """A column's values. Texts that are the same become one object, whose hash is computed once."""
    if column.null_count == len(column):
        return [None] * len(column)
    if not pa.types.is_string(column.type):
        return np.asarray(column).tolist() if column.null_count == 0 else list(column.to_pylist())
    encoded = column.dictionary_encode()
    if 2 * len(encoded.dictionary) > len(column):
        return list(column.to_pylist())
    texts = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
    places: np.ndarray = pc.fill_null(encoded.indices, len(texts) - 1).to_numpy()
    return cast("list[Any]", texts[places].tolist())


def _answers(source: str, batch: pa.RecordBatch, answers: HeartbeatAnswers) -> pa.Table:
    rows, seqs, times, codes = answers.arrays()
    count = len(rows)
    if count == 0:
        return NOTHING
    if count < batch.num_rows:
        batch = batch.select(_ANSWERED).take(pa.array(rows))
    columns: dict[str, Any] = {name: batch.column(name) for name in _ANSWERED}
    columns |= {
        "kind": repeated("response", count),
        "source": repeated(source, count),
        "seq": pa.array(seqs),
        "ts": pa.array(times),
        "by": columns["request_id"],
        "api": repeated("Heartbeat", count),
        "error_code": pa.array(codes.astype(np.int32)),
        "body": _bodies(columns["api_version"], codes),
    }
    arrays = [columns.get(field.name, nulls(field.type, count)) for field in OUTPUTS]
    return pa.table(arrays, schema=OUTPUTS)


def _bodies(versions: pa.Array, codes: np.ndarray) -> pa.Array:
    """The answers' JSON: there are few different ones, and mostly one."""
    numbers = np.asarray(versions, dtype=np.int64)
    if numbers.min() == numbers.max() and codes.min() == codes.max():
        return repeated(heartbeat_json(int(numbers[0]), int(codes[0])), len(codes))
    # Version and error in one number.
    different, places = np.unique(numbers << 32 | (codes + (1 << 16)), return_inverse=True)
    texts = [heartbeat_json(number >> 32, (number & 0xFFFFFFFF) - (1 << 16)) for number in different.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(places))
