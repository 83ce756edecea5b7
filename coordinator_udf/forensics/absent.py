"""Why a report would tell of nothing: which groups there are, and of which time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final

from coordinator_udf.forensics.load import Ask
from coordinator_udf.forensics.window import Window

#: So many names stand in a line that can be read; with more groups those that are most like the one asked for.
_MOST_NAMES: Final = 10
#: How like a name has to be to be named, of 1: those with the same words in another order are, those with one of three
#: are not. With double few are, with half most.
_LIKENESS: Final = 0.5
_TIMES: Final = {"group_transitions": "ts", "group_responses": "ts", "consumer_offsets": "ts", "request_log": "log_ts"}
_ROWS: Final = " UNION ALL ".join(f"SELECT group_id, {ts} AS ts FROM {table}" for table, ts in _TIMES.items())
_GROUPS: Final = (
    f"SELECT group_id, min(ts) AS first, max(ts) AS last FROM ({_ROWS}) GROUP BY group_id ORDER BY group_id"
)


def why_nothing(ask: Ask, window: Window) -> str:
    """Returns what is wrong with a window in which nothing is told.

    Args:
        ask: asks where the tables are, with the rows of all groups.
    """
    told = {row["group_id"]: (row["first"], row["last"]) for row in ask(_GROUPS) if row["group_id"] is not None}
    if not told:
        return "these inputs tell of no group"
    asked_for = window.group_ids
    for group_id in asked_for or ():
        if group_id not in told:
            return no_group(group_id, list(told))
    what = "any group"
    if asked_for is not None:
        what = f"the group{'s' if len(asked_for) > 1 else ''} {', '.join(map(repr, asked_for))}"
    if window.since is None and window.until is None:
        return f"nothing that happened to {what} is told in these inputs, which name {_counted(len(told))}"
    times = [told[group_id] for group_id in (told if asked_for is None else asked_for)]
    first, last = min(first for first, _ in times), max(last for _, last in times)
    asked = [f"--from {window.since}"] if window.since is not None else []
    asked += [f"--to {window.until}"] if window.until is not None else []
    return f"nothing is told of {what} with {' '.join(asked)} (UTC); the inputs are of {_at(first)} to {_at(last)}"


def no_group(group_id: str, groups: Sequence[str]) -> str:
    """Returns what to say of a group that is not among those, in their order, which there are."""
    return f"--group is {group_id!r}, of which these inputs tell nothing; {_named(group_id, groups)}"


def _named(asked: str, names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return f"expected one of: {', '.join(names)}"
    near = get_close_matches(asked, names, _MOST_NAMES, _LIKENESS)
    if near:
        return f"of the {len(names):,} groups in them these are near: {', '.join(near)}"
    return f"of the {len(names):,} groups in them none is near; the first ones are {', '.join(names[:_MOST_NAMES])}"


def _counted(groups: int) -> str:
    return "one group" if groups == 1 else f"{groups:,} groups"


def _at(ts: int) -> str:
    return f"{datetime.fromtimestamp(ts / 1000, UTC):%Y-%m-%d %H:%M:%S}"
