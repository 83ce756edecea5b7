"""What came of the search, as rows of the tables explanations and unexplained and as lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from coordinator_udf.replay.explain.results import Explained, Explanation, GroupKey, Option, Outcome, Unexplained
from coordinator_udf.replay.judge.compare import Difference
from coordinator_udf.replay.recording import ReplaySource
from schemas.explanations import EXPLANATIONS_TABLE, UNEXPLAINED_TABLE, explanations_arrow, unexplained_arrow

Row = dict[str, Any]
#: Of an answer that isn't one group's, or that a group gave otherwise once its answers were put together.
_NOT_SEARCHED = "its groups' orders explain all else"


def explanation_tables(source: ReplaySource, unexplained: Sequence[Row]) -> dict[str, pa.Table]:
    """Returns both tables of one source.

    Args:
        unexplained: the rows of those that were found in the end.
    """
    rows = [*(row for row, _ in _explained(source)), *_placed(source)]
    return {
        EXPLANATIONS_TABLE: pa.Table.from_pylist(rows, explanations_arrow()),
        UNEXPLAINED_TABLE: table_of_unexplained(unexplained),
    }


def table_of_unexplained(rows: Sequence[Row]) -> pa.Table:
    """Returns the table unexplained of its rows."""
    return pa.Table.from_pylist(list(rows), unexplained_arrow())


def explanation_lines(source: ReplaySource) -> Iterator[str]:
    """Yields one line an explanation, with what was moved and by how much."""
    for row, found in _explained(source):
        moves = ", ".join(_move_text(move) for move in row["moved"])
        fewer = f"with fewer than {len(found.moved)} changes" if len(found.moved) > 1 else "without a change"
        yield (
            f"explained: {row['api']} {row['request_id']} of group {row['group_id']}: {moves}; "
            f"{fewer} no order explains it ({found.tries} steps tried)"
        )
    for row in _placed(source):
        (move,) = row["moved"]
        yield (
            f"explained: ListGroups {row['request_id']}: its part of shard {row['partition']} made "
            f"{_by_ms(move['moved_ms'])}; at its usual moment the shard had other groups than were listed"
        )
    yield from _adoption_lines(source)


def _adoption_lines(source: ReplaySource) -> Iterator[str]:
    """Yields one line a group that was put in the state that later answers tell, and where."""
    explained = source.explained
    for (_, group_id), outcome in explained.outcomes.items() if explained is not None else ():
        for adopted in outcome.adopted:
            following = outcome.course[adopted.course : adopted.course + 1]
            where = "".join(f"before {outcome.request_ids[place]}, " for place, _ in following)
            waited = f"; {len(adopted.dropped)} that waited get no answer" if adopted.dropped else ""
            if adopted.of_load:
                yield (
                    f"loaded: group {group_id}: at {adopted.at_ms} ms, as the answers that follow tell; with what the "
                    "log has of it no order explains them"
                )
                continue
            yield (
                f"put right: group {group_id}: {where}at {adopted.at_ms} ms, in the state that the next answers tell"
                f"{waited}; no order explains both what was answered before and those"
            )


def unexplained_line(row: Row) -> str:
    """Returns one line of an answer that nothing explains."""
    others = f", in other orders {len(row['ours']) - 1} more answers" if len(row["ours"]) > 1 else ""
    ours = row["ours"][0] if row["ours"] else "nothing"
    return (
        f"unexplained: {row['api']} {row['request_id']} of group {row['group_id']}: the broker said "
        f"{row['recorded']}, the usual order gives {ours}{others} ({row['tries']} steps tried); {row['searched']}"
    )


def _move_text(move: Row) -> str:
    what = move["request_id"] or "a timer or an event of the shard"
    if not move["moved_ms"]:
        return f"{what} handled out of turn"
    return f"{what} handled {_by_ms(move['moved_ms'])}"


def _by_ms(moved_ms: int) -> str:
    return f"{abs(moved_ms)} ms {'later' if moved_ms > 0 else 'earlier'}"


def _placed(source: ReplaySource) -> Iterator[Row]:
    """Yields the rows of lists of all groups of which a shard's part was made at another moment than usual."""
    for placed in source.explained.placed if source.explained is not None else ():
        yield {
            "source": source.source,
            "partition": placed.partition,
            "group_id": None,
            "request_id": placed.request_id,
            "ts": placed.ts,
            "api": "ListGroups",
            "moved": [{"request_id": placed.request_id, "ts": placed.ts, "moved_ms": placed.moved_ms}],
            "tries": 0,
        }


def _explained(source: ReplaySource) -> Iterator[tuple[Row, Explanation]]:
    explained = source.explained
    apis = _apis(source) if explained is not None else {}
    for key, outcome in explained.outcomes.items() if explained is not None else ():
        times = dict(outcome.course)
        for found in outcome.explanations:
            request_id = outcome.request_ids[found.place]
            yield (
                {
                    "source": source.source,
                    "partition": key[0],
                    "group_id": key[1],
                    "request_id": request_id,
                    "ts": times[found.place],
                    "api": apis[request_id],
                    "moved": [row for move in found.moved for row in _moves(move, outcome)],
                    "tries": found.tries,
                },
                found,
            )


def _moves(move: Option, outcome: Outcome) -> Iterator[Row]:
    """Yields what a change of the usual order moved: a step, or what was due, and what was late for it."""
    if move.place is None:
        yield {"request_id": None, "ts": move.at_ms, "moved_ms": 0}
        return
    moved_ms = move.at_ms - outcome.natural_ms[move.place]
    yield {"request_id": outcome.request_ids[move.place], "ts": move.at_ms, "moved_ms": moved_ms}
    if move.kept is not None:
        yield {"request_id": None, "ts": move.kept[1], "moved_ms": 0}
    if move.late_ms:
        yield {"request_id": None, "ts": move.at_ms + 1, "moved_ms": move.late_ms}


def unexplained_rows(source: ReplaySource, differences: Sequence[Difference]) -> Iterator[Row]:
    """Yields the rows of answers that nothing explains.

    Args:
        differences: those that were found in the end.
    """
    known = _by_request(source.explained) if source.explained is not None else {}
    groups = {row["request_id"]: row["group_id"] for row in source.rows} if differences else {}
    for difference in differences:
        if difference.undecided is not None:
            continue
        place = known.get(difference.request_id or "")
        key, found = place if place is not None else ((None, groups.get(difference.request_id)), None)
        shown = [] if difference.ours is None else [json_of(difference.ours)]
        yield {
            "source": source.source,
            "partition": key[0],
            "group_id": key[1],
            "request_id": difference.request_id,
            "ts": difference.recorded["ts"] if isinstance(difference.recorded, Mapping) else None,
            "api": difference.api,
            "recorded": None if difference.recorded is None else json_of(difference.recorded),
            "ours": shown if found is None else [*shown, *found.ours[1:]],
            "tries": 0 if found is None else found.tries,
            "searched": _NOT_SEARCHED if found is None else found.searched,
        }


def _by_request(explained: Explained) -> dict[str, tuple[GroupKey, Unexplained]]:
    return {
        outcome.request_ids[found.place]: (key, found)
        for key, outcome in explained.outcomes.items()
        for found in outcome.unexplained
    }


def _apis(source: ReplaySource) -> dict[str, str]:
    return {row["request_id"]: row["api"] for row in source.rows if row["request_id"] is not None}


def json_of(side: Any) -> str:
    """Returns what was said, as the tables have it."""
    body = side["body"] if isinstance(side, Mapping) and "body" in side else side
    return msgspec.json.encode(body).decode()
