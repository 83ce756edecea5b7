"""Explains a broker's log: puts its rows in an order, and at times, that explain the broker's answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from coordinator_udf.replay.explain.bounds import Bounds
from coordinator_udf.replay.explain.results import Explained
from coordinator_udf.replay.explain.shard import ShardSearch
from coordinator_udf.replay.explain.steps import Row, split_by_group, with_news_after_loading
from coordinator_udf.replay.explain.supposed_rows import supposed_in
from coordinator_udf.replay.explain.suppositions import (
    better_with_early_loads,
    better_with_failed_timers,
    better_with_other_looks,
    better_with_unseen_joins,
    without_the_end,
)
from coordinator_udf.replay.explain.wanted import groups_in_lists, groups_that_differ
from coordinator_udf.replay.inputs.broker_log.undecided import LogFacts
from coordinator_udf.replay.judge.compare import Difference
from coordinator_udf.replay.recording import ReplaySource, number_offsets
from schemas.requests import CONTROL_APIS


def explain(
    source: ReplaySource,
    facts: LogFacts,
    differing: Mapping[str, Difference],
    bounds: Bounds = Bounds(),  # noqa: B008 - a tuple
    *,
    lists: Collection[str] = (),
    known: Explained | None = None,
) -> Explained:
    """Changes the order and times of a source's rows so that they explain the broker's answers, as far as any do.

    Args:
        facts: what the log tells that the rows don't.
        differing: the answers that differ as the rows stand, by request; the groups in which they do are looked at.
        lists: the requests for lists of all groups of which what is told of a group is looked at as well.
        known: what came of groups of the same rows, in the same order, before that was looked at; it stands for the
            others.
    """
    explained = Explained()
    listed = groups_in_lists(source, {each: differing[each] for each in lists if each in differing}, facts)
    wanted = sorted(
        {*groups_that_differ(source.rows, differing, facts), *(key for keys in listed.values() for key in keys)}
    )
    if not wanted:
        return explained
    rows = split_by_group(source.rows, set(wanted))
    answers = {answer.request_id: answer for answer in source.recording.answers}
    if known is not None:
        explained.unseen += known.unseen
        explained.supposed += known.supposed
        answers |= {join.row["request_id"]: join.answer for join in known.unseen}
    by_shard: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_shard[row["partition"]].append(row)
    source.rows[:] = []
    for partition, in_order in sorted(by_shard.items()):
        own = [group_id for place, group_id in wanted if place == partition]
        make = partial(
            ShardSearch, partition, source=source, facts=facts, answers=answers, bounds=bounds, listed=listed
        )
        if known is not None:
            shard = make(as_found(in_order, known.events.get(partition, ())))
            shard.know(known)
            shard.search(own)
        else:
            shard = _searched(make, in_order, own)
            explained.supposed += supposed_in(shard.rows)
        explained.outcomes |= shard.outcomes
        explained.unseen += shard.unseen
        explained.broken |= shard.broken
        explained.events[partition] = shard.events
        source.rows += shard.rows_in_order()
    number_offsets(source.rows)
    facts.entries.update((join.row["request_id"], join.entry) for join in explained.unseen)
    return explained


def as_found(rows: Sequence[Row], events: Sequence[tuple[str, int]]) -> Sequence[Row]:
    """Returns a shard's rows in that of the two orders in which its control rows stand as they were found.

    Args:
        rows: in the order of the log.
        events: what happened to the shard, as it was found before.
    """
    usual = with_news_after_loading(rows)
    found = [api for api, _ in events]
    return usual if [row["api"] for row in usual if row["api"] in CONTROL_APIS] == found else rows


def _searched(make: Callable[..., ShardSearch], rows: Sequence[Row], wanted: Sequence[str]) -> ShardSearch:
    """Searches groups of a shard as it usually is; where that leaves something unexplained, as it may be as well.

    Args:
        make: makes the shard of its rows.
    """
    usual = with_news_after_loading(rows)
    shard = make(usual)
    shard.search(wanted)
    shard = without_the_end(shard)
    if shard.once_searched:
        make = partial(make, once_searched=True)
    shard = better_with_failed_timers(better_with_other_looks(shard, make), make)
    shard = better_with_early_loads(better_with_unseen_joins(shard))
    return shard.or_if_better(make(rows)) if shard.unexplained and usual != rows else shard
