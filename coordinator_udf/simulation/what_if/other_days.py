"""A log's world as it might have been on another day: what is chance in it is drawn anew.

Between two runs of the same programs differ the ids that members are given, and how much of a heartbeat interval is
left when something happens: who hears of it when hangs on that. The recorded ids and times are therefore left out, and
what is done to each client after its group was first formed comes up to an interval later, all of it by as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.process_names import client_and_run


def on_another_day(plan: WorldPlan, formed_ms: int, seed: int) -> WorldPlan:
    """Returns a world's plan with its chances drawn.

    Args:
        formed_ms: when its group was first formed, from the world's start.
    """
    draws = Random(seed)
    of_coordinator_ms = Settings.from_kafka(plan.settings).group_consumer_heartbeat_interval_ms
    later_ms: dict[str, int] = {}
    for member in plan.members:
        later_ms.setdefault(member.client_id, draws.randrange(_interval_ms(member, of_coordinator_ms)))
    removals = (
        replace(one, at_ms=_later(one.at_ms, later_ms[client_and_run(one.process)[0]], formed_ms))
        for one in plan.removals
    )
    members = (_drawn(member, later_ms, formed_ms) for member in plan.members)
    return replace(plan, members=tuple(members), removals=tuple(removals))


def _later(at_ms: int, by_ms: int, formed_ms: int) -> int:
    return at_ms + by_ms if at_ms > formed_ms else at_ms


def _interval_ms(member: MemberPlan, of_coordinator_ms: int) -> int:
    config = member.config()
    return of_coordinator_ms if config.group_protocol == "consumer" else config.heartbeat_interval_ms


def _drawn(member: MemberPlan, later_ms: Mapping[str, int], formed_ms: int) -> MemberPlan:
    by_ms = later_ms[member.client_id]

    def later(at_ms: int) -> int:
        return _later(at_ms, by_ms, formed_ms)

    return replace(
        member,
        start_ms=later(member.start_ms),
        close_at_ms=None if member.close_at_ms is None else later(member.close_at_ms),
        crash_at_ms=None if member.crash_at_ms is None else later(member.crash_at_ms),
        stalls=tuple(replace(stall, at_ms=later(stall.at_ms)) for stall in member.stalls),
        hangs=tuple(replace(hang, at_ms=later(hang.at_ms)) for hang in member.hangs),
        resubscribes=tuple((later(at_ms), topics) for at_ms, topics in member.resubscribes),
        learns_ms=tuple(map(later, member.learns_ms)),
        rejoins=tuple((later(first_ms), later(last_ms)) for first_ms, last_ms in member.rejoins),
        beats_ms=(),
        acks_ms=(),
        looks_ms=(),
        sent_ms=(),
        answered_late_ms=(),
        member_ids=(),
    )
