"""Reads a broker's own log: the group coordinator's lines out of all others, as rows of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, tzinfo
from typing import Any, Final, NamedTuple

from coordinator_udf.replay.inputs.info_log.group import modern_kinds, static_counts
from coordinator_udf.replay.inputs.info_log.lines import InfoLine, parse_line
from coordinator_udf.replay.inputs.info_log.replacing import with_replacing_members
from coordinator_udf.replay.inputs.info_log.transitions import Transitions
from coordinator_udf.replay.inputs.log_time import NoTimeError

#: The columns of coordinator_log that a line has itself.
_COLUMNS: Final = (
    "ts", "broker", "partition", "group_id", "member_id", "old_member_id", "group_instance_id", "client_id",
    "client_host", "protocol", "state", "generation", "member_count", "assignor", "duration_ms", "reason",
    "client_reason", "message",
)  # fmt: skip


class InfoLog(NamedTuple):
    """What the lines of the group coordinator tell.

    Attributes:
        lines: rows of coordinator_log, all columns but source; ``event`` is null where a line has no known shape.
        transitions: rows of group_transitions, all columns but source.
        others: how many lines are not the group coordinator's.
        unreadable: lines of the coordinator without a time that can be read, with the reason.
    """

    lines: list[dict[str, Any]]
    transitions: list[dict[str, Any]]
    others: int
    unreadable: list[tuple[str, str]]

    @property
    def events(self) -> Counter[str]:
        """How many lines there are of each kind; those of no known shape under ``unknown``."""
        return Counter(line["event"] or "unknown" for line in self.lines)

    @property
    def groups(self) -> set[str]:
        """The groups that the lines name."""
        return {line["group_id"] for line in self.lines if line["group_id"] is not None}


def read_info_log(texts: Iterable[str], zone: tzinfo = UTC) -> InfoLog:
    """Reads the lines of a broker's log, in the order in which it wrote them.

    Args:
        zone: the time zone of times that name none.
    """
    read: list[tuple[int, InfoLine]] = []
    unreadable: list[tuple[str, str]] = []
    others = 0
    for seq, text in enumerate(texts):
        try:
            line = parse_line(text, zone)
        except NoTimeError as error:
            unreadable.append((str(error), text))
            continue
        if line is None:
            others += 1
        else:
            read.append((seq, line))
    lines = [line for _, line in read]
    transitions = Transitions(modern_kinds(lines), static_counts(lines))
    named = zip((seq for seq, _ in read), with_replacing_members(lines), strict=True)
    rows = [row for seq, line in named for row in transitions.rows(seq, line)]
    return InfoLog([_row(seq, line) for seq, line in read], list(_numbered(rows)), others, unreadable)


def _row(seq: int, line: InfoLine) -> dict[str, Any]:
    event = None if line.event is None else str(line.event)
    return {"seq": seq, "event": event, **{name: getattr(line, name) for name in _COLUMNS}}


def _numbered(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields rows with a ``seq`` of their own, for a line may add several."""
    for seq, row in enumerate(rows):
        yield {**row, "seq": seq}
