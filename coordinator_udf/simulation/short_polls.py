"""Finds the groups with members whose polls are too short for the pattern that they subscribe to."""

from __future__ import annotations

from coordinator_udf.simulation.application import works_long
from coordinator_udf.simulation.plan import MemberPlan, NetworkPlan, WorldPlan

#: A classic member with a pattern doesn't join, or isn't told that it has, for no poll lasts until metadata is there.
SHORT_POLL = "short poll"


def groups_of_short_polls(plan: WorldPlan) -> frozenset[str]:
    """Returns the groups that may wait for members of short polls.

    A classic member that subscribes to a pattern, and is to join, asks for metadata in each poll, and goes on only in
    one that still has that to wait for: what came longer ago than retry.backoff.ms is asked for again
    (ConsumerCoordinator.poll). Once it has joined, its heartbeat thread reads the answer between two polls.
    """
    return frozenset(member.group_id for member in plan.members if polls_too_shortly(member, plan.network))


def polls_too_shortly(member: MemberPlan, network: NetworkPlan) -> bool:
    """Tells whether a classic member's polls may be too short to join with the pattern that it subscribes to."""
    if not member.matches_pattern:
        return False
    return member.poll_ms < 2 * network.latency_ms[1] and works_long(member, member.config())
