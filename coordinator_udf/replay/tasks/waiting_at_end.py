"""Members that waited when a broker's log ended.

A JoinGroup that waits has no line yet, and its member sends no heartbeats meanwhile. Who was told to join, and isn't
heard of again, is taken to wait where the coordinator would else have put it out, if nothing speaks against it: whoever
is answered before the log's end would have a line. So is who hasn't got one where others have one of a generation that
was joined as the log ended.

Source: ClassicGroupMember.hasSatisfiedHeartbeat, which no member fails that waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from coordinator_udf.replay.explain.steps import Row
from coordinator_udf.replay.explain.unseen_joins import UnseenJoin, unseen_joins
from coordinator_udf.replay.inputs.broker_log.undecided import LogFacts
from coordinator_udf.replay.judge.compare import Verdict
from coordinator_udf.replay.recording import ReplaySource, number_offsets
from coordinator_udf.tables.outputs import Outputs

NOTE: Final = "joins without a line yet when the log ended, of members that would else count as put out"

_Judged = tuple[Outputs, Verdict]


def with_waiting_joins(
    source: ReplaySource, facts: LogFacts, outputs: Outputs, verdict: Verdict, judged: Callable[[], _Judged]
) -> _Judged:
    """Runs a source with joins that waited when its log ended; what came of it, or what is known where none may have.

    Args:
        facts: of the log; it learns of the joins.
        outputs: what came of the source as its rows are.
        judged: runs the source and compares.
    """
    joins = _put_out(source, facts, outputs)
    explained = source.explained
    if not joins or explained is None:
        return outputs, verdict
    rows, known = list(source.rows), explained.unseen
    differed = {difference.request_id for difference in verdict.differences}
    while joins:
        source.rows[:] = _rows_in_time(rows, joins)
        number_offsets(source.rows)
        explained.unseen = [*known, *joins]
        tried = judged()
        differs = [difference for difference in tried[1].differences if difference.request_id not in differed]
        if not differs:
            facts.entries.update((join.row["request_id"], join.entry) for join in joins)
            source.notes[NOTE] += len(joins)
            return tried
        answered = {difference.request_id for difference in differs}
        # Groups see nothing of each other: what is answered otherwise tells of its own group's joins alone.
        blamed = {group_id for difference in differs for group_id in facts.differing_groups(difference)}
        waiting = [join for join in joins if join.row["request_id"] not in answered]
        if len(waiting) == len(joins):
            waiting = [join for join in joins if join.row["group_id"] not in blamed]
        joins = waiting if len(waiting) < len(joins) else []
    source.rows[:], explained.unseen = rows, known
    number_offsets(source.rows)
    return outputs, verdict


def _put_out(source: ReplaySource, facts: LogFacts, outputs: Outputs) -> list[UnseenJoin]:
    """Returns the joins that may have waited of those whom a timer puts out."""
    cut = facts.cut_groups()
    put_out: dict[tuple[str, str], int] = {}
    columns = ("group_id", "cause_member_id", "cause_timer", "ts")
    for transition in outputs.transitions.select(columns).to_pylist():
        at_ms = transition["ts"]
        # Where others were answered as the log ended, the clock has to run on for ours to be.
        is_seen = source.ends_ms is None or at_ms <= source.ends_ms or transition["group_id"] in cut
        if transition["cause_timer"] is not None and is_seen:
            put_out[transition["group_id"], transition["cause_member_id"]] = at_ms
    groups = {group_id for group_id, _ in put_out}
    joins = unseen_joins(source.rows, facts.entries, groups, facts.ends_us, cut) if groups else ()
    supposed = {row["request_id"] for row in source.rows}
    return [
        join
        for join in joins
        if join.ends_log
        and join.row["request_id"] not in supposed
        and join.row["log_ts"] <= put_out.get((join.row["group_id"], join.row["member_id"]), -1)
    ]


def _rows_in_time(rows: Sequence[Row], joins: Sequence[UnseenJoin]) -> list[Row]:
    """Returns rows with more joins, each in its shard at its time."""
    shards: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        shards[row["partition"]].append(row)
    for join in joins:
        of_shard = shards[join.row["partition"]]
        of_shard.insert(bisect_right(of_shard, join.row["log_ts"], key=_time), {**join.row})
    return [row for _, of_shard in sorted(shards.items()) for row in of_shard]


def _time(row: Row) -> int:
    at_ms: int = row["log_ts"]
    return at_ms
