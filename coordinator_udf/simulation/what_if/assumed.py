"""What is taken to be so in a group's worlds, as its log can't tell it, in words."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_udf.settings.coordinator import FIELDS, Settings
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.what_if.change import CLASSIC, CONSUMER, Change, protocol_of

#: What a coordinator has for all members of consumer groups, in milliseconds.
_OF_CONSUMER_GROUPS = ("group.consumer.session.timeout.ms", "group.consumer.heartbeat.interval.ms")
_INITIAL_DELAY = "group.initial.rebalance.delay.ms"


def assumed(plan: WorldPlan, changed: WorldPlan, change: Change) -> Iterator[str]:
    """Yields what no log tells, and what that of one group protocol doesn't tell of the other.

    Args:
        plan: of the world as it was.
        changed: of the world with the change.
    """
    yield from _of_applications(plan)
    yield from _of_metadata(changed)
    before = {protocol_of(member) for member in plan.members}
    if change.protocol == CONSUMER and CLASSIC in before:
        yield from _of_consumer_groups(changed)
    if change.protocol == CLASSIC and CONSUMER in before:
        yield from _of_classic_members(plan, changed, change)


def _of_applications(plan: WorldPlan) -> Iterator[str]:
    for polls_ms, works_ms, calls_ms in dict.fromkeys((m.poll_ms, m.process_ms, m.callback_ms) for m in plan.members):
        yield (
            f"how long applications wait in poll, work on what it gives them and run callbacks: {polls_ms}, {works_ms} "
            f"and {calls_ms} ms are taken"
        )


def _of_metadata(changed: WorldPlan) -> Iterator[str]:
    """Yields how old members' knowledge of topics gets, where it matters: the coordinator tells those of KIP-848."""
    classic = [member for member in changed.members if protocol_of(member) == CLASSIC]
    if classic and any(topic.at_ms > 0 for topic in changed.topics):
        age_ms = max(int(member.properties["metadata.max.age.ms"]) for member in classic)
        yield (
            "metadata.max.age.ms, after which classic members see that topics changed where the log doesn't show when: "
            f"{age_ms}, Kafka's default, is taken"
        )


def _of_consumer_groups(changed: WorldPlan) -> Iterator[str]:
    for name in _OF_CONSUMER_GROUPS:
        if name not in changed.settings:
            yield f"{name}, which no log of classic groups tells: {FIELDS[name].default}, Kafka's default, is taken"


def _of_classic_members(plan: WorldPlan, changed: WorldPlan, change: Change) -> Iterator[str]:
    was = Settings.from_kafka(plan.settings)
    if change.session_timeout_ms is None:
        session_ms = was.group_consumer_session_timeout_ms
        yield f"session.timeout.ms of its members as classic ones: {session_ms}, that of the group, is taken"
    if change.heartbeat_interval_ms is None:
        interval_ms = was.group_consumer_heartbeat_interval_ms
        yield f"heartbeat.interval.ms of its members as classic ones: {interval_ms}, that of the group, is taken"
    if change.assignor is None:
        yield "the assignors of its members as classic ones: Kafka's default, range and cooperative-sticky, is taken"
    if _INITIAL_DELAY not in changed.settings:
        delay_ms = FIELDS[_INITIAL_DELAY].default
        yield f"{_INITIAL_DELAY}, which no log of KIP-848 tells: {delay_ms}, Kafka's default, is taken"
