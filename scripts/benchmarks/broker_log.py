"""Makes a broker's request log of any length: repeats real ones under other groups' names, connections and times.

All logs have to be of one cluster whose topics stay as they are. What spans groups of several copies (a list of all
groups, an admin's change of topics) isn't repeated.
"""

from __future__ import annotations

import gzip
import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer

from coordinator_udf.protocol.errors import error_codes

_MARK: Final = "Completed request:"
_TIME: Final = "%Y-%m-%d %H:%M:%S,%f"
#: What stands where a copy's number goes, behind a name and behind a number, and how JSON writes both.
_NAME, _NUMBER = "\0", "\1"
_NAME_TEXT, _NUMBER_TEXT = "\\u0000", "\\u0001"
#: What a copy can't have of its own: lists of all groups, topics, and answers that tell of a whole shard.
_LEFT_OUT: Final = frozenset({"LIST_GROUPS", "CREATE_TOPICS", "CREATE_PARTITIONS", "DELETE_TOPICS", "FIND_COORDINATOR"})
_OF_SHARDS: Final = (14, 15, 16)
_LISTS_OF_GROUPS: Final = ("groups", "groupsNames", "groupIds", "results")
_START: Final = datetime(2026, 11, 1, tzinfo=UTC)


class Line(NamedTuple):
    """A line of a real log: when it was written, since the first, and its JSON with marks for a copy's number."""

    after: timedelta
    text: str


class Repeated(NamedTuple):
    """A real log as it is repeated: its lines in order, and how many groups they ask about."""

    lines: list[Line]
    groups: int


def read(path: Path, lines_a_group: int | None = None) -> Repeated | None:
    """Reads a log to be repeated; None if it tells of shards that were lost.

    Args:
        lines_a_group: how many lines there are at most for each group: the log is cut behind them.
    """
    found: list[Line] = []
    groups: set[str] = set()
    first: datetime | None = None
    for text in gzip.decompress(path.read_bytes()).decode().splitlines():
        place = text.find(_MARK)
        if place < 0:
            continue
        done: dict[str, Any] = msgspec.json.decode(text[place + len(_MARK) : text.rfind("}") + 1])
        time = datetime.strptime(text[1 : text.index("]")], _TIME).replace(tzinfo=UTC)
        first = first or time
        if done["requestHeader"]["requestApiKeyName"] in _LEFT_OUT:
            continue
        if any(code in _OF_SHARDS for code in error_codes(done["response"])):
            return None
        asked = done["request"].get("groupId") or ""
        groups |= {group for side in ("request", "response") for group in _mark_groups(done[side], asked)}
        done["connection"] += _NUMBER
        found.append(Line(time - first, msgspec.json.encode(done).decode()))
    if lines_a_group is not None:
        del found[lines_a_group * len(groups) :]
    return Repeated(found, len(groups))


def _mark_groups(body: dict[str, Any], asked: str) -> Iterator[str]:
    """Puts a mark behind each group's id, also in a message; the ids as they were."""
    group_id = body.get("groupId") or asked
    if group_id and body.get("errorMessage"):
        body["errorMessage"] = body["errorMessage"].replace(group_id, group_id + _NAME)
    if body.get("groupId"):
        yield group_id
        body["groupId"] += _NAME
    for name in _LISTS_OF_GROUPS:
        for place, group in enumerate(body.get(name) or ()):
            if isinstance(group, str):
                yield group
                body[name][place] = group + _NAME
            else:
                yield from _mark_groups(group, "")


def repeated(logs: Sequence[Repeated], lines: int, groups: int, every: timedelta) -> Iterator[str]:
    """Yields the lines of a log of so many lines, and groups at least.

    Args:
        every: how long after one copy the next begins.
    """
    streams: list[Iterator[tuple[datetime, int, str]]] = []
    made = made_groups = 0
    sources = itertools.cycle(logs)
    while made < lines or made_groups < groups:
        log = next(sources)
        copy = len(streams)
        streams.append(_copy(log, copy, _START + copy * every))
        made += len(log.lines)
        made_groups += log.groups
    for time, _, text in heapq.merge(*streams):
        yield f"[{time:%Y-%m-%d %H:%M:%S},{time.microsecond // 1000:03d}] DEBUG {_MARK}{text} (kafka.request.logger)\n"


def _copy(log: Repeated, copy: int, start: datetime) -> Iterator[tuple[datetime, int, str]]:
    for after, text in log.lines:
        yield start + after, copy, text.replace(_NAME_TEXT, f"-{copy}").replace(_NUMBER_TEXT, f"{copy:06d}")


def write(path: Path, texts: Iterable[str]) -> int:
    """Writes lines to a file, compressed if it is called ``.gz``; how many."""
    count = 0
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as out:
        for text in texts:
            out.write(text)
            count += 1
    return count


def main(
    inputs: Annotated[list[Path], typer.Argument(help="real request logs of one cluster, gzip")],
    *,
    out: Annotated[Path, typer.Option(help="where the log goes")],
    lines: Annotated[int, typer.Option(help="how many lines, at least")] = 1_000_000,
    groups: Annotated[int, typer.Option(help="how many groups, at least")] = 10_000,
    lines_a_group: Annotated[int | None, typer.Option(help="where the real ones are cut")] = None,
    every_ms: Annotated[int, typer.Option(help="how long after one copy the next begins")] = 1_000,
) -> None:
    """Makes a long request log."""
    logs = [log for path in inputs if (log := read(path, lines_a_group)) is not None and log.lines]
    every = timedelta(milliseconds=every_ms)
    typer.echo(f"{write(out, repeated(logs, lines, groups, every)):,} lines")


if __name__ == "__main__":
    typer.run(main)
