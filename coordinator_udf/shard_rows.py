"""The edge of a shard: columns of the request log in, columns of outputs out. Nothing that comes in gets lost here.

A row that can't be read becomes a rejected output. A row whose handling raises is answered UNKNOWN_SERVER_ERROR, what
it did to its group is undone, and it becomes a rejected output with the traceback; the shard lives on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from coordinator_udf.protocol.rows import Output, Request
from coordinator_udf.shard import PoisonRow, Shard
from coordinator_udf.shard_codec import StateRow, encode, restore

_INTEGERS = ("partition", "offset", "log_ts")
_TEXTS = ("request_id", "api", "group_id", "member_id", "group_instance_id", "client_id", "client_host", "body")


def process_columns(shard: Shard, source: str, columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Handles rows of the request log in order.

    Args:
        source: the coordinator that the rows belong to; stands in every output.
        columns: schemas.requests.REQUEST_COLUMNS, ``source`` not needed, as sequences of one length.

    Returns:
        schemas.outputs.OUTPUT_COLUMNS as lists of one length.
    """
    names = Request._fields
    rows = [Request._make(values) for values in zip(*(columns[name] for name in names), strict=True)]
    outputs = process_rows(shard, rows)
    result: dict[str, list[Any]] = {"source": list(repeat(source, len(outputs)))}
    transposed: Sequence[Sequence[Any]] = list(zip(*outputs, strict=True)) if outputs else [()] * len(Output._fields)
    for name, values in zip(Output._fields, transposed, strict=True):
        result[name] = list(values)
    return result


def process_rows(shard: Shard, rows: Sequence[Request]) -> list[Output]:
    """Handles rows in order, whatever is in them.

    After a row that makes a handler raise the shard is put back to where the call (or the last such row) began, and
    the rows before it are handled again: they give the same outputs, which is what makes this right.
    """
    outputs: list[Output] = []
    start = 0
    while start < len(rows):
        readable = _readable(rows, start)
        if readable > start:
            start = _process_readable(shard, rows, start, readable, outputs)
            continue
        row = rows[start]
        outputs += shard.reject(_repaired(shard, row), _complaint(row) or "unreadable row")
        start += 1
    return outputs


def _process_readable(shard: Shard, rows: Sequence[Request], start: int, end: int, outputs: list[Output]) -> int:
    """Handles ``rows[start:end]`` up to the first that is poison, if any; the index of the row to go on with."""
    before: StateRow = encode(shard)
    try:
        outputs += shard.process(rows[start:end])
        return end
    except PoisonRow as poison:
        restore(shard, before)
        if poison.timer is not None:
            shard.poisoned.add(poison.timer)
            return start
        bad = start + poison.index
        outputs += shard.process(rows[start:bad])
        outputs += shard.reject(rows[bad], str(poison.__cause__), poison.details)
        return bad + 1


def _readable(rows: Sequence[Request], start: int) -> int:
    """The end of the run of rows from ``start`` on that have the types a handler counts on."""
    for index in range(start, len(rows)):
        if _complaint(rows[index]) is not None:
            return index
    return len(rows)


def _complaint(row: Request) -> str | None:
    """What is wrong with a row before anybody looks into its body; None if nothing."""
    if type(row.log_ts) is not int or type(row.offset) is not int or type(row.partition) is not int:
        name = next(name for name in _INTEGERS if type(getattr(row, name)) is not int)
        return f"{name} is {getattr(row, name)!r}, expected a whole number"
    if type(row.api) is not str:
        return f"api is {row.api!r}, expected the name of an API"
    if row.log_ts < 0:
        return f"log_ts is {row.log_ts}, expected milliseconds since the epoch"
    return None


def _repaired(shard: Shard, row: Request) -> Request:
    """A row that can stand in an output: what isn't of its column's type is left out."""
    readable: dict[str, Any] = {
        name: value if isinstance(value := getattr(row, name), str) else None for name in _TEXTS
    }
    readable |= {name: value if type(value := getattr(row, name)) is int else -1 for name in _INTEGERS}
    readable["api"] = readable["api"] or ""
    readable["api_version"] = row.api_version if type(row.api_version) is int else 0
    readable["partition"] = shard.partition
    readable["log_ts"] = max(readable["log_ts"], shard.ctx.now_ms)
    return row._replace(**readable)
