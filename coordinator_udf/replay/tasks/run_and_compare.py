"""Runs a read source and compares it with its recording, in the order that its answers tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from coordinator_udf.replay.explain.explain import explain
from coordinator_udf.replay.explain.listings import place_listings
from coordinator_udf.replay.explain.proposals import proposed_settings
from coordinator_udf.replay.explain.results import Explained
from coordinator_udf.replay.explain.setting_bounds import bounds_of
from coordinator_udf.replay.explain.steps import Row
from coordinator_udf.replay.explain.supposed_rows import with_supposed
from coordinator_udf.replay.explain.unexplained import with_unexplained
from coordinator_udf.replay.explain.unseen_joins import rows_with
from coordinator_udf.replay.explain.unseen_topics import (
    assigned_otherwise,
    expressions_by_group,
    shards_of,
    supposed_topics,
    unexplained_groups,
    with_topic,
)
from coordinator_udf.replay.inputs.broker_log.undecided import ENDED, REBASED, LogFacts
from coordinator_udf.replay.judge.compare import Difference, Verdict, compare
from coordinator_udf.replay.judge.excluded import excluded_by
from coordinator_udf.replay.judge.moments import date_requests, with_answered_moments
from coordinator_udf.replay.judge.our_answers import our_outputs
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.in_process import Runs
from coordinator_udf.replay.tasks.waiting_at_end import with_waiting_joins
from coordinator_udf.tables.outputs import Outputs


def run_and_compare(source: ReplaySource) -> tuple[Outputs, Verdict]:
    """Runs a source and compares; where answers tell an order that the log leaves open, once more in that order.

    Of a broker's log join phases end in the outputs when its answers say so.
    """
    runs = Runs(source)
    outputs, verdict = _judged(source, runs)
    if source.facts is None:
        return outputs, verdict
    expressions = expressions_by_group(source.facts)
    usual = [(row, row["log_ts"]) for row in source.rows] if expressions else []
    outputs, verdict, explained = _in_answered_order(source, source.facts, runs, outputs, verdict)
    supposed = _with_unseen_topics(source, source.facts, expressions, usual, verdict)
    if supposed.topics:
        source.rows[:], source.explained = supposed.rows, None
        outputs, verdict, explained = _in_answered_order(source, source.facts, runs, *_judged(source, runs))
        source.notes["topics that no line names, taken to exist as members were assigned so"] += supposed.topics
    told = len(explained.unseen)
    outputs, verdict = with_waiting_joins(source, source.facts, outputs, verdict, lambda: _judged(source, runs))
    if explained.moved:
        note = "order or time of requests within what the log leaves open, taken from their answers"
        source.notes[note] += explained.moved
    if told:
        note = "joins that waited and that nobody answered any more, as other answers tell"
        source.notes[note] += told
    if explained.rebased:
        source.notes["groups put in the state that later answers tell"] += explained.rebased
    differing = {difference.request_id for difference in verdict.differences}
    outputs = with_answered_moments(outputs, source.recording, differing)
    date_requests(source.rows, outputs)
    return outputs, verdict


def _judged(source: ReplaySource, runs: Runs) -> tuple[Outputs, Verdict]:
    """Runs a source as its rows are now, and compares."""

    def undecided(difference: Difference) -> str | None:
        reason = None if source.facts is None else source.facts.undecided(difference)
        if reason is None and source.explained is not None and difference.request_id is not None:
            waited = difference.ours is None and difference.request_id in source.explained.dropped
            return REBASED if waited else None
        return reason

    outputs = runs.outputs()
    said, excluded = our_outputs(outputs, with_records=source.recording.exact), excluded_by(source)
    if source.explained is not None and source.explained.unseen:
        end_ms = source.ends_ms or 0
        for join in source.explained.unseen:
            told = said.answers.get(join.row["request_id"])
            if told is not None and join.needs_no_line(told, end_ms):
                del said.answers[told.request_id]
    verdict = compare(source.source, source.recording, said, excluded, undecided)
    if source.explained is not None:
        verdict = with_unexplained(source, source.explained, verdict, undecided)
    return outputs, verdict


def _in_answered_order(
    source: ReplaySource, facts: LogFacts, runs: Runs, outputs: Outputs, verdict: Verdict
) -> tuple[Outputs, Verdict, Explained]:
    """Puts a source's rows in the order that answers tell, and runs and compares it so; says what was found."""
    # A rebalance of which the log tells no more shows in other answers as well.
    decided = (difference for difference in verdict.differences if difference.undecided in {None, ENDED})
    differing = {difference.request_id: difference for difference in decided if difference.request_id is not None}
    usual = [(row, row["log_ts"]) for row in source.rows]
    lists = {request_id for request_id, difference in differing.items() if difference.api == "ListGroups"}
    known: Explained | None = None
    for looked_at in (set[str](), lists):
        explained = source.explained = explain(source, facts, differing, lists=looked_at, known=known)
        known = explained
        explained.placed += place_listings(source, facts, verdict.differences)
        if explained.outcomes or explained.placed:
            outputs, verdict = _judged(source, runs)
        again = place_listings(source, facts, verdict.differences)
        if again:
            explained.placed += again
            outputs, verdict = _judged(source, runs)
        lists &= {difference.request_id or "" for difference in verdict.differences if difference.undecided is None}
        if not lists:
            break
        if not looked_at:
            # What such a list tells of groups says when something happened to them.
            rows = rows_with([{**row, "log_ts": log_ts} for row, log_ts in usual], explained.unseen)
            source.rows[:] = with_supposed(rows, explained.supposed)
    return outputs, verdict, explained


class _Supposed(NamedTuple):
    """How many topics explain what members were assigned, and a source's rows with them."""

    topics: int
    rows: list[Row]


def _with_unseen_topics(
    source: ReplaySource,
    facts: LogFacts,
    expressions: Mapping[str, Sequence[str]],
    usual: Iterable[tuple[Row, int]],
    verdict: Verdict,
) -> _Supposed:
    """Looks for topics that the log doesn't name with which nothing is left to explain in a group where there was.

    Not where something else is likelier: settings that don't fit, or a group that is older than the log.

    Args:
        expressions: by group, by which members subscribed.
        usual: the source's rows in the log's own order, with its times (ms).
        verdict: without such topics.
    """
    left = set(filter(facts.has_begun, assigned_otherwise(verdict.differences, facts) & expressions.keys()))
    if not left or proposed_settings(bounds_of(facts), source.settings):
        return _Supposed(0, [])
    supposed = _Supposed(0, [{**row, "log_ts": log_ts} for row, log_ts in usual])
    before = unexplained_groups(verdict.differences, facts)
    while left:
        shards = shards_of(left, source.partitions)
        of_shards = [row for row in supposed.rows if row["partition"] in shards]
        for topic in supposed_topics(of_shards, (regex for group in sorted(left) for regex in expressions[group])):
            differing = _differing_with(source, facts, with_topic(of_shards, topic, shards))
            if left - differing and differing <= before:
                break
        else:
            break
        # It exists for all shards; those that nobody subscribes in by an expression answer as without it.
        supposed = _Supposed(supposed.topics + 1, with_topic(supposed.rows, topic, range(source.partitions)))
        left &= differing
    return supposed


def _differing_with(source: ReplaySource, facts: LogFacts, rows: list[Row]) -> set[str]:
    """Returns the groups of which nothing says why an answer differs, where these are their shards' rows."""
    rows = [{**row} for row in rows]
    asked = {row["request_id"] for row in rows if row["parts"] in {None, 1}}
    answers = [answer for answer in source.recording.answers if answer.request_id in asked]
    recording = msgspec.structs.replace(source.recording, answers=answers)
    tried = msgspec.structs.replace(source, rows=rows, recording=recording, explained=None)
    runs = Runs(tried)
    _, verdict, _ = _in_answered_order(tried, facts, runs, *_judged(tried, runs))
    return unexplained_groups(verdict.differences, facts)
