"""What may have happened to a shard that its log doesn't tell, where that leaves less unexplained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import copy

from coordinator_udf.groups.model.timers import NEVER_MS
from coordinator_udf.replay.explain.excused import excused_by
from coordinator_udf.replay.explain.failed_timers import hangs_before_losses, with_failed_timers
from coordinator_udf.replay.explain.looks import MOST_UNEXPLAINED, times_of_looks, with_look
from coordinator_udf.replay.explain.machine import GroupMachine
from coordinator_udf.replay.explain.results import Outcome
from coordinator_udf.replay.explain.shard import ShardSearch
from coordinator_udf.replay.explain.steps import Row, named_groups, with_early_loads
from coordinator_udf.replay.explain.unseen_joins import (
    FEW,
    IN_VAIN,
    IN_VAIN_OF_SHARD,
    REACH_MS,
    TOLD,
    UnseenJoin,
    unseen_joins,
)
from coordinator_udf.shard.shard import PoisonRow
from schemas.requests import CONTROL_APIS


def better_with_other_looks(shard: ShardSearch, make: Callable[[Sequence[Row]], ShardSearch]) -> ShardSearch:
    """Returns the shard as it is if it looked for what has expired at other times, if that leaves less unexplained.

    Args:
        make: makes the shard of its rows.
    """
    interval_ms = shard.source.settings.offsets_retention_check_interval_ms
    for (_, group_id), outcome in sorted(shard.outcomes.items()):
        for at_ms in _times_of_looks(shard, group_id, outcome, interval_ms):
            rows = with_look(shard.rows, shard.partition, at_ms, interval_ms)
            if rows is None:
                continue
            other = make(rows)
            other.search([group_id])
            if other.unexplained < len(outcome.unexplained) and (better := shard.or_if_better(other)) is other:
                return better
    return shard


def _times_of_looks(shard: ShardSearch, group_id: str, outcome: Outcome, interval_ms: int) -> list[int]:
    """Returns the times at which a look may explain what nothing explains of what was told of a group."""
    steps = [shard.steps[group_id][found.place] for found in outcome.unexplained]
    if not 0 < len(steps) <= MOST_UNEXPLAINED:
        return []
    unexplained = {step.row["request_id"]: step for step in steps}
    rows = [row for row in shard.rows_in_order() if row["api"] in CONTROL_APIS or group_id in named_groups(row)]
    machine = GroupMachine(shard.partition, shard.source.settings, keep_log=True)
    try:
        return times_of_looks(machine, rows, unexplained, interval_ms)
    except PoisonRow:
        return []


def better_with_failed_timers(shard: ShardSearch, make: Callable[[Sequence[Row]], ShardSearch]) -> ShardSearch:
    """Returns the shard with groups whose timers failed, where its broker hung, if that leaves less unexplained.

    Args:
        make: makes the shard of its rows.
    """
    left = sorted(group_id for (_, group_id), outcome in shard.outcomes.items() if outcome.unexplained)
    hangs = list(hangs_before_losses(shard.rows, shard.facts.hangs)) if left else []
    in_vain = 0
    for group_id, hang in ((group_id, hang) for group_id in left for hang in hangs):
        as_it_is = shard.outcomes.get((shard.partition, group_id))
        unexplained = as_it_is.unexplained if as_it_is is not None else []
        answered_ms = (shard.steps[group_id][found.place].latest_ms for found in unexplained)
        if in_vain == IN_VAIN_OF_SHARD or max(answered_ms, default=0) * 1_000 <= hang.start_us:
            continue
        other = make(with_failed_timers(shard.rows, shard.partition, group_id, hang))
        other.search([group_id])
        outcome = other.outcomes.get((shard.partition, group_id))
        is_better = outcome is not None and len(outcome.unexplained) < len(unexplained)
        better = shard.or_if_better(other) if is_better else shard
        shard, in_vain = better, in_vain + 1 if better is shard else 0
    return shard


def better_with_unseen_joins(shard: ShardSearch) -> ShardSearch:
    """Returns the shard with joins that the log doesn't have with which less is unexplained; else as it is.

    They may explain what would else be left open by the log's end.
    """
    if not shard.once_searched:
        return _with_unseen_joins(shard)
    strict = shard.searched_anew(once_searched=False)
    found = _with_unseen_joins(strict)
    if found is strict:
        return shard
    better = found.searched_anew(once_searched=True)
    return better if better.unexplained <= shard.unexplained else shard


def _with_unseen_joins(shard: ShardSearch) -> ShardSearch:
    left = {group_id for (_, group_id), outcome in shard.outcomes.items() if outcome.unexplained}
    joins: defaultdict[str, list[UnseenJoin]] = defaultdict(list)
    for join in unseen_joins(shard.rows, shard.facts.entries, left, shard.facts.ends_us) if left else ():
        joins[join.row["group_id"]].append(join)
    in_vain = 0
    for group_id, of_group in joins.items():
        told_ms, of_group_in_vain = _told_ms(shard, group_id), 0
        while told_ms and of_group_in_vain < IN_VAIN and in_vain < IN_VAIN_OF_SHARD:
            due_ms = told_ms.pop(0)
            untried = (join for join in of_group if join not in shard.unseen)
            near = [join for join in untried if 0 <= due_ms - join.row["log_ts"] <= REACH_MS]
            if not near:
                continue
            better = _better_with(shard, group_id, near, due_ms)
            if better is shard:
                in_vain, of_group_in_vain = in_vain + 1, of_group_in_vain + 1
                continue
            in_vain = of_group_in_vain = 0
            shard, told_ms = better, _told_ms(better, group_id)
    return shard


def _told_ms(shard: ShardSearch, group_id: str) -> list[int]:
    """Returns when a group's members were told what nothing explains, in ms."""
    steps = shard.steps.get(group_id, [])
    left = (steps[found.place] for found in shard.outcomes[shard.partition, group_id].unexplained)
    return sorted(step.latest_ms for step in left if step.row["api"] in TOLD)


def _better_with(shard: ShardSearch, group_id: str, joins: Sequence[UnseenJoin], due_ms: int) -> ShardSearch:
    """Returns the shard with joins if less is unexplained with them, of what was told by a time and of all."""
    until = sum(at_ms <= due_ms for at_ms in _told_ms(shard, group_id))
    for some in (joins, *([join] for join in joins if 1 < len(joins) <= FEW)):
        glance, waiting = _with_those_that_wait(shard, group_id, some, due_ms)
        if not waiting or len(_told_ms(glance, group_id)) >= until:
            continue
        better, waiting = _with_those_that_wait(shard, group_id, waiting, NEVER_MS)
        is_better = bool(waiting) and shard.or_if_better(better) is better
        if is_better and better.waits_in_vain <= shard.waits_in_vain:
            return better
    return shard


def _with_those_that_wait(
    shard: ShardSearch, group_id: str, joins: Sequence[UnseenJoin], until_ms: int
) -> tuple[ShardSearch, Sequence[UnseenJoin]]:
    """Returns the shard with those of some joins that nobody answers, its group searched up to a time; and those."""
    while True:
        other = shard.with_joins(joins, until_ms=until_ms)
        other.search([group_id])
        outcome = other.outcomes.get((shard.partition, group_id))
        if outcome is None:
            return other, ()
        answered = {outcome.request_ids[found.place] for found in outcome.unexplained}
        waiting = [join for join in joins if join.row["request_id"] not in answered]
        if len(waiting) == len(joins) or not waiting:
            return other, waiting
        joins = waiting


def better_with_early_loads(shard: ShardSearch) -> ShardSearch:
    """Returns the shard with its loads as early as they may be if that leaves less unexplained, or else as it is.

    Where answers leave open whether it was loading, a load is taken to be in the middle of them.
    """
    if not shard.unexplained:
        return shard
    early = with_early_loads(shard.shared, shard.rows, shard.facts.entries)
    if early == shard.shared:
        return shard
    other = copy(shard)
    other.begin_anew(early)
    return shard.or_if_better(other)


def without_the_end(shard: ShardSearch) -> ShardSearch:
    """Returns the shard without what its log's end leaves open, if that is some of what nothing explains."""
    is_open = any(_is_left_open(shard, group_id, outcome) for (_, group_id), outcome in shard.outcomes.items())
    return shard.searched_anew(once_searched=True) if is_open else shard


def _is_left_open(shard: ShardSearch, group_id: str, outcome: Outcome) -> bool:
    """Returns whether the log's end leaves an answer open that nothing explains."""
    excused = excused_by(shard.source.source, shard.facts, once_searched=True)
    return any(excused(shard.steps[group_id][found.place], found.ours[0]) for found in outcome.unexplained)
