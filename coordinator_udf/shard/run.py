"""The edge of a shard: columns of the request log in, outputs out. Nothing that comes in gets lost here.

A row that can't be read becomes a rejected output. A row whose handling raises is answered UNKNOWN_SERVER_ERROR, what
it did to its group is undone, and it becomes a rejected output with the traceback; the shard lives on.

Most rows are heartbeats of stable groups: those take a short way (heartbeat_fast_path);
`Shard.handle_row` does the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any

from coordinator_udf.groups.decisions import Said
from coordinator_udf.protocol.log_row import Output, Request
from coordinator_udf.protocol.requests import VERSIONS
from coordinator_udf.shard.heartbeat_fast_path import (
    BEAT_COLUMNS,
    Beat,
    Columns,
    HeartbeatAnswers,
    Rows,
    run_leading,
    run_long_way,
    run_short_way,
)
from coordinator_udf.shard.outputs import to_rows
from coordinator_udf.shard.shard import PoisonRow, Shard
from coordinator_udf.shard.state_row.codec import StateRow, encode, restore

#: The end of the year 9999, after which no table's timestamp goes. Time never goes back, so nothing may take it there.
LAST_TIME_MS = 253_402_300_799_999

#: The columns that are numbers, with their bits, those that are text, and those of both that are never null.
_BITS = {"partition": 32, "offset": 64, "log_ts": 64, "api_version": 32, "generation_or_epoch": 32, "parts": 32}
_TEXTS = frozenset(Request._fields) - frozenset(_BITS)
_REQUIRED = frozenset({"partition", "offset", "log_ts", "api"})


class ColumnRows:
    """Rows as sequences of Python values, by the column's name."""

    def __init__(self, columns: Columns) -> None:
        self._columns = [columns[name] for name in Request._fields]
        self._by_name = columns

    def __len__(self) -> int:
        return len(self._by_name["api"])

    def row(self, index: int) -> Request:
        """One row."""
        return Request._make([column[index] for column in self._columns])

    def has_plain(self, start: int, end: int) -> bool:
        """Whether a row of a range may be a heartbeat whose columns say all: not looked into here."""
        return start < end

    def beats(self, start: int, end: int) -> Iterator[Beat]:
        """The rows in a range, as heartbeats."""
        columns = self._by_name
        plain = [
            api == "Heartbeat" and body is None
            for api, body in zip(columns["api"][start:end], columns["body"][start:end], strict=True)
        ]
        return zip(plain, *(columns[name][start:end] for name in BEAT_COLUMNS), strict=True)

    def plain_beats(self, start: int, end: int) -> None:
        """Nothing: values of Python are looked at one by one."""

    def unreadable(self) -> dict[int, str]:
        """The rows that don't have what a handler counts on, with what is wrong; in order."""
        return find_unreadable(self._by_name)


def process_columns(shard: Shard, source: str, columns: Columns, *, short_way: bool = True) -> dict[str, list[Any]]:
    """Handles rows of the request log in order.

    Args:
        shard: the shard that the rows belong to.
        source: the coordinator that the rows belong to; stands in every output.
        columns: schemas.requests.REQUEST_COLUMNS, ``source`` not needed, as sequences of one length.
        short_way: False to let every heartbeat take the long way (for tests: both must say the same).

    Returns:
        schemas.outputs.OUTPUT_COLUMNS as lists of one length, in the order of ``seq``.
    """
    outputs = _outputs(shard, columns, short_way=short_way)
    by_name = zip(Output._fields, zip(*outputs, strict=True), strict=True) if outputs else ()
    result: dict[str, list[Any]] = {name: [] for name in Output._fields} | {"source": [source] * len(outputs)}
    return result | {name: list(values) for name, values in by_name}


def process_rows(shard: Shard, rows: Sequence[Request], *, short_way: bool = True) -> list[Output]:
    """Handles rows in order and puts out rows, in the order of their ``seq``."""
    transposed: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(Request._fields)
    return _outputs(shard, dict(zip(Request._fields, transposed, strict=True)), short_way=short_way)


def _outputs(shard: Shard, columns: Columns, *, short_way: bool) -> list[Output]:
    said, answers = process(shard, ColumnRows(columns), short_way=short_way)
    outputs = to_rows(said, shard.partition)
    filled = answers.columns(columns)
    outputs += [Output(**dict(zip(filled, values, strict=True))) for values in zip(*filled.values(), strict=True)]
    return sorted(outputs, key=lambda output: output.seq)


def process(shard: Shard, rows: Rows, *, short_way: bool = True) -> tuple[Said, HeartbeatAnswers]:
    """Handles rows in order, whatever is in them; takes what the shard says.

    After a row that makes a handler raise the shard is put back to where the call (or the last such row) began, and
    the rows before it are handled again: they give the same outputs, which is what makes this right.
    """
    answers = HeartbeatAnswers()
    count = len(rows)
    unreadable = rows.unreadable()
    start = 0
    while start < count:
        end = next((index for index in unreadable if index >= start), count)
        if end > start:
            start = _process_readable(shard, rows, (start, end), answers, short_way=short_way)
            continue
        row = rows.row(start)
        shard.reject(_repaired(shard, row), unreadable[start], raw=row)
        start += 1
    said, shard.ctx.said = shard.ctx.said, Said()
    return said, answers


def _process_readable(
    shard: Shard, rows: Rows, span: tuple[int, int], answers: HeartbeatAnswers, *, short_way: bool
) -> int:
    """Handles a run of rows up to the first that is poison, if any; the index of the row to go on with."""
    start, end = span
    if short_way and shard.origin is None:
        start = run_leading(shard, rows, span, answers)
        if start == end:
            return end
    before: StateRow = shard.origin or encode(shard)
    said, answered = shard.ctx.said.mark(), answers.mark()
    run = run_short_way if short_way else run_long_way
    try:
        run(shard, rows, (start, end), answers)
        return end
    except PoisonRow as poison:
        shard.ctx.said.cut(said)
        answers.cut(answered)
        restore(shard, before)
        if poison.timer is not None:
            shard.poisoned[poison.timer] = poison.details
            return start
        run(shard, rows, (start, poison.index), answers)
        row = rows.row(poison.index)
        shard.run_timers(row.log_ts, poison.index)
        shard.reject(row, str(poison.__cause__), poison.details)
        return poison.index + 1


def find_unreadable(columns: Columns) -> dict[int, str]:
    """The rows that don't have what a handler counts on, with what is wrong; in order."""
    found: dict[int, str] = {}
    for name, values in columns.items():
        if name in _BITS and not _are_numbers(values, name):
            complaints = ((index, _number_complaint(name, value)) for index, value in enumerate(values))
        elif name in _TEXTS and not _are_texts(values, name):
            complaints = ((index, _text_complaint(name, value)) for index, value in enumerate(values))
        else:
            continue
        for index, complaint in complaints:
            if complaint is not None:
                found.setdefault(index, complaint)
    apis, versions = columns["api"], columns["api_version"]
    # There are few different pairs, if they can be told apart at all.
    is_simple = set(map(type, apis)) | set(map(type, versions)) <= {int, str, NoneType}
    if not is_simple or any(wrong_version(*pair) for pair in set(zip(apis, versions, strict=True))):
        for index, pair in enumerate(zip(apis, versions, strict=True)):
            if complaint := wrong_version(*pair):
                found.setdefault(index, complaint)
    return dict(sorted(found.items()))


def _are_numbers(values: Sequence[Any], name: str) -> bool:
    """Whether a column of numbers has nothing else, without a look at each of them on its own."""
    types = set(map(type, values))
    if not types <= ({int} if name in _REQUIRED else {int, NoneType}):
        return False
    numbers = values if NoneType not in types else [value for value in values if value is not None]
    first, last = _bounds(name)
    return not numbers or first <= min(numbers) <= max(numbers) <= last


def _are_texts(values: Sequence[Any], name: str) -> bool:
    types = set(map(type, values))
    if not types <= ({str} if name in _REQUIRED else {str, NoneType}):
        return False
    # In one piece: a look at each text on its own is a tenth of what a heartbeat costs.
    return _can_be_written("".join(values if NoneType not in types else [text for text in values if text is not None]))


def _bounds(name: str) -> tuple[int, int]:
    if name == "log_ts":
        return 0, LAST_TIME_MS
    return -(2 ** (_BITS[name] - 1)), 2 ** (_BITS[name] - 1) - 1


def _number_complaint(name: str, value: Any) -> str | None:
    first, last = _bounds(name)
    if (type(value) is int and first <= value <= last) or (value is None and name not in _REQUIRED):
        return None
    if name == "log_ts":
        return f"log_ts is {value!r}, expected milliseconds since the epoch, at most {LAST_TIME_MS}"
    return f"{name} is {value!r}, expected a whole number of {_BITS[name]} bits"


def _text_complaint(name: str, value: Any) -> str | None:
    if (type(value) is str and _can_be_written(value)) or (value is None and name not in _REQUIRED):
        return None
    return f"{name} is {value!r}, expected {'the name of an API' if name == 'api' else 'text'}"


def _can_be_written(text: str) -> bool:
    """Half of a surrogate pair is a Python text and no Unicode one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def wrong_version(api: Any, api_version: Any) -> str | None:
    """What is wrong with a request's version, without which there is no telling what its answer is made of."""
    versions = VERSIONS.get(api) if isinstance(api, str) else None
    if versions is None or (type(api_version) is int and versions[0] <= api_version <= versions[1]):
        return None
    return f"api_version of {api} is {api_version!r}, expected {versions[0]} to {versions[1]}"


def _repaired(shard: Shard, row: Request) -> Request:
    """A row that can stand in an output: what isn't of its column's type is left out. It says nothing of the time."""
    readable: dict[str, Any] = {
        **{name: value if _text_complaint(name, value := getattr(row, name)) is None else None for name in _TEXTS},
        **{name: value if _number_complaint(name, value := getattr(row, name)) is None else None for name in _BITS},
    }
    api = readable["api"] = readable["api"] or ""
    # What answers it has to have a shape that there is.
    first, last = VERSIONS.get(api, (0, 0))
    readable["api_version"] = min(max(readable["api_version"] or 0, first), last)
    readable |= {"partition": shard.partition, "log_ts": shard.ctx.now_ms}
    return row._replace(**readable)
