"""The rows of a record batch of the request log, as a shard reads them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import VERSIONS

#: The end of the year 9999, the latest that a timestamp of Spark's may be. A row of a later time is refused: a shard's
#: time never goes back, so all rows after it would have that time, too.
LAST_TIME_MS: Final = 253_402_300_799_999

#: The columns that no row can do without.
_REQUIRED: Final = ("partition", "offset", "log_ts", "api")

BEAT_COLUMNS: Final = ("log_ts", "group_id", "member_id", "generation_or_epoch", "group_instance_id")

#: Whether a row is a heartbeat without a body (its columns say all); then the values of `BEAT_COLUMNS`.
HeartbeatRow = tuple[bool, int, Any, Any, Any, Any]

#: What decides about a heartbeat that is handled together with others.
_DECIDES: Final = ("log_ts", "group_id", "member_id", "generation_or_epoch")

#: Columns of texts that are hardly ever the same twice.
_DIFFERENT: Final = frozenset({"request_id", "body"})

#: From so many rows on equal texts of a column become one Python object (dictionary encoding), hashed once. Measured
#: where each text stands ten times, CPU time a row without and with it: 512 rows 72 and 82 ns, 1,024 rows 74 and 76,
#: 2,048 rows 75 and 71; it costs 12 us however few they are.
_MANY: Final = 1_024

#: Heartbeats are handled together where there are at least `BULK_ROWS` of them, and at most `_OTHERS_A_BEAT` other rows
#: for each. Measured, CPU time a heartbeat together and one by one: of 20 29 to 37 and 45 to 57 us, of 40 13 to 17 and
#: 21 to 28, of 80 6 to 12 and 12 to 17. Half as many changes little; with 100 a shard of few members pays twice.
BULK_ROWS: Final = 25
_OTHERS_A_BEAT: Final = 3


#: Makes a request of all its values without the detour over `Request._make`.
_new_request = partial(tuple.__new__, Request)


class PlainHeartbeats(NamedTuple):
    """Heartbeats that name a group, a member and a generation, and no instance, as columns.

    Attributes:
        rows: which rows they are.
        times: log time, milliseconds.
        groups: the different groups.
        group_of: of each heartbeat the place of its group in ``groups``.
        member_ids: who sent it.
        generation_ids: which generation it names.
    """

    rows: np.ndarray
    times: np.ndarray
    groups: list[str]
    group_of: np.ndarray
    member_ids: pa.StringArray
    generation_ids: np.ndarray


class BatchRows:
    """Rows of a record batch. All but heartbeats without a body are made into Python values at once."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch.select(list(Request._fields))
        self._plain = _where(pc.equal(batch.column("api"), "Heartbeat"))
        if batch.column("body").null_count < batch.num_rows:
            self._plain &= np.asarray(pc.is_null(batch.column("body")))
        #: Those of them that name a group, a member and a generation, and no instance: the `PlainHeartbeats`.
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
        """Returns one row."""
        found = self._others.get(index)
        if found is None:
            # Heartbeats become Python values only when they are asked for.
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
        """Returns whether a row of a range is a heartbeat whose columns say all."""
        return bool(self._plain[start:end].any())

    def heartbeats(self, start: int, end: int) -> Iterator[HeartbeatRow]:
        """Returns the rows in a range, as heartbeats."""
        rows = self._batch.slice(start, end - start)
        columns = [_python(rows.column(name)) for name in BEAT_COLUMNS]
        return zip(self._plain[start:end].tolist(), *columns, strict=True)

    def plain_heartbeats(self, start: int, end: int) -> PlainHeartbeats | None:
        """Returns the heartbeats in a range that can be handled together; None if they are few."""
        places = np.flatnonzero(self._simple[start:end])
        if len(places) < max(BULK_ROWS, (end - start) // _OTHERS_A_BEAT):
            return None
        rows = self._batch.slice(start, end - start)
        columns = [rows.column(name) for name in _DECIDES]
        if len(places) < len(rows):
            columns = [column.take(pa.array(places)) for column in columns]
        times, group_ids, member_ids, generation_ids = columns
        groups = group_ids.dictionary_encode()
        return PlainHeartbeats(
            start + places,
            np.asarray(times),
            groups.dictionary.to_pylist(),
            np.asarray(groups.indices),
            member_ids,
            np.asarray(generation_ids),
        )

    def unreadable(self) -> dict[int, str]:
        """Returns the rows that don't have what a handler counts on, with what is wrong; in order."""
        required = [self._batch.column(name) for name in _REQUIRED]
        times = pc.min_max(self._batch.column("log_ts")).as_py()
        timely = 0 <= (times["min"] or 0) <= (times["max"] or 0) <= LAST_TIME_MS
        is_whole = timely and not any(column.null_count for column in required)
        if is_whole and not any(wrong_version(*pair) for pair in self._versions()):
            return {}
        columns = [column.to_pylist() for column in (*required, self._batch.column("api_version"))]
        complaints = ((index, _complaint(*values)) for index, values in enumerate(zip(*columns, strict=True)))
        return {index: complaint for index, complaint in complaints if complaint is not None}

    def _versions(self) -> set[tuple[str, int | None]]:
        """Returns the different pairs of an API and a version."""
        apis = self._batch.column("api").dictionary_encode()
        versions = self._batch.column("api_version").dictionary_encode(null_encoding="encode")
        # Both places in one number: there are few of them.
        both = np.asarray(apis.indices, np.int64) << 32 | np.asarray(versions.indices, np.int64)
        names, numbers = apis.dictionary.to_pylist(), versions.dictionary.to_pylist()
        return {(names[pair >> 32], numbers[pair & 0xFFFFFFFF]) for pair in np.unique(both).tolist()}


def _where(condition: pa.Array) -> np.ndarray:
    """Returns where a condition holds and is not null."""
    return np.array(pc.fill_null(condition, False) if condition.null_count else condition)


def _python(column: pa.Array) -> list[Any]:
    """Returns a column's values. Of many, texts that are the same become one object, whose hash is computed once."""
    if len(column) < _MANY:
        return list(column.to_pylist())
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


def wrong_version(api: str | None, api_version: int | None) -> str | None:
    """Returns what is wrong with a request's version, without which there is no telling what its answer is made of."""
    versions = VERSIONS.get(api or "")
    if versions is None or (api_version is not None and versions[0] <= api_version <= versions[1]):
        return None
    return f"api_version of {api} is {api_version!r}, expected {versions[0]} to {versions[1]}"


def _complaint(
    partition: int | None, offset: int | None, log_ts: int | None, api: str | None, api_version: int | None
) -> str | None:
    for name, number in (("partition", partition), ("offset", offset)):
        if number is None:
            return f"{name} is None, expected a whole number"
    if log_ts is None or not 0 <= log_ts <= LAST_TIME_MS:
        return f"log_ts is {log_ts!r}, expected milliseconds since the epoch, at most {LAST_TIME_MS}"
    if api is None:
        return "api is None, expected the name of an API"
    return wrong_version(api, api_version)
