"""Runs a read source and compares it with its recording, in the order that its answers tell."""

from __future__ import annotations

from coordinator_udf.replay.explain.explain import explain
from coordinator_udf.replay.explain.listings import place_listings
from coordinator_udf.replay.explain.results import Explained
from coordinator_udf.replay.explain.unexplained import with_unexplained
from coordinator_udf.replay.inputs.broker_log.undecided import ENDED, REBASED, LogFacts
from coordinator_udf.replay.judge.compare import Difference, Verdict, compare
from coordinator_udf.replay.judge.excluded import excluded_by
from coordinator_udf.replay.judge.moments import date_requests, with_answered_moments
from coordinator_udf.replay.judge.our_answers import our_outputs
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.in_process import Runs
from coordinator_udf.tables.outputs import Outputs


def run_and_compare(source: ReplaySource) -> tuple[Outputs, Verdict]:
    """Runs a source and compares; where answers tell an order that the log leaves open, once more in that order.

    Of a broker's log join phases end in the outputs when its answers say so.
    """
    runs = Runs(source)
    outputs, verdict = _judged(source, runs)
    if source.facts is None:
        return outputs, verdict
    outputs, verdict, explained = _in_answered_order(source, source.facts, runs, outputs, verdict)
    if explained.moved:
        note = "order or time of requests within what the log leaves open, taken from their answers"
        source.notes[note] += explained.moved
    if explained.rebased:
        source.notes["groups put in the state that later answers tell"] += explained.rebased
    outputs = with_answered_moments(outputs, source.recording)
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
            source.rows[:] = [{**row, "log_ts": log_ts} for row, log_ts in usual]
    return outputs, verdict, explained
