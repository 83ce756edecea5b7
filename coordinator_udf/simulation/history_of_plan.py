"""Begins a world's history with what its plan tells of it."""

from __future__ import annotations

from coordinator_udf.members.config import METADATA_MAX_AGE_MS, MemberConfig
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.simulation.history import NO_LIMIT, History
from coordinator_udf.simulation.outlasted import rebalance_timeouts_ms, who_leaves_on_close
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.poll_intervals import longest_stays_ms
from coordinator_udf.simulation.short_polls import groups_of_short_polls
from coordinator_udf.simulation.uncommitted import commits_first_ms
from coordinator_udf.simulation.uneven import even_groups
from coordinator_udf.simulation.unheeded import always_heard, polls_within_ms


def history_of(plan: WorldPlan) -> History:
    """Returns the history of a world in which nothing has happened."""
    configs = {member.name: member.config() for member in plan.members}
    sessions_ms = [config.session_timeout_ms for config in configs.values() if config.group_protocol == "classic"]
    return History(
        plan.start_ms + plan.begin_ms,
        plan.start_ms + plan.end_ms,
        plan.partitions_at_end(),
        misbehaving=frozenset(member.name for member in plan.members if member.habit is not None),
        kip_848=frozenset(member.name for member in plan.members if member.is_kip_848),
        retention_ms=Settings.from_kafka(plan.settings).offsets_retention_ms,
        deleted=[(plan.start_ms + one.at_ms, one.name) for one in plan.topics if one.partitions == 0],
        made_again=[(plan.start_ms + at_ms, name) for at_ms, name in plan.topics_made_again()],
        classic_max_size=int(plan.settings.get("group.max.size", NO_LIMIT)),
        consumer_max_size=int(plan.settings.get("group.consumer.max.size", NO_LIMIT)),
        quiet_from_ms=plan.start_ms + plan.last_fault_ms(),
        quiet_ms=plan.quiet_ms,
        loses_connections=plan.network.loss > 0,
        short_polls=groups_of_short_polls(plan),
        poll_intervals_ms={name: config.max_poll_interval_ms for name, config in configs.items()},
        longest_stays_ms=longest_stays_ms(plan),
        rebalance_timeouts_ms=rebalance_timeouts_ms(plan),
        leave_on_close=who_leaves_on_close(plan),
        always_heard=always_heard(plan),
        polls_within_ms=polls_within_ms(plan),
        cooperative=frozenset(name for name, config in configs.items() if _is_cooperative(config)),
        commits_first_ms=commits_first_ms(plan),
        longest_session_ms=max(sessions_ms, default=0),
        shortest_session_ms=min(sessions_ms, default=0),
        even_groups=even_groups(plan),
        with_static_members=frozenset(one.group_id for one in plan.members if "group.instance.id" in one.properties),
        known_partitions=_known_partitions(plan),
    )


def _is_cooperative(config: MemberConfig) -> bool:
    return config.group_protocol == "classic" and all(
        name.endswith("CooperativeStickyAssignor") for name in config.partition_assignment_strategy
    )


def _known_partitions(plan: WorldPlan) -> dict[str, dict[str, int]]:
    """Returns how many partitions processes know of in any case that needn't know yet how topics grew by the end.

    A classic member hears of that when its metadata is too old, and then has as long as all have to be stable. What was
    deleted meanwhile it may have heard of, by its fetches, and not that it was made again.
    """
    known = {}
    changes_ms = [time_ms - plan.start_ms for time_ms in plan.topics_changed_ms()]
    changed_ms = max(changes_ms, default=0)
    for member in plan.members if changed_ms > 0 else ():
        age_ms = int(member.properties.get("metadata.max.age.ms", METADATA_MAX_AGE_MS))
        since_ms = max(0, plan.end_ms - age_ms - (plan.quiet_ms or 0))
        if not member.is_kip_848 and changed_ms > since_ms:
            counts = [plan.partitions_at(time_ms) for time_ms in (since_ms, *changes_ms) if time_ms >= since_ms]
            known[member.name] = {topic: min(one.get(topic, 0) for one in counts) for topic in counts[0]}
    return known
