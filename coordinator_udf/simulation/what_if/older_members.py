"""Members that are older than their log, as of every log that was rotated: how they were set up, and when they join.

Such a member joins so long before the log that its group is stable when the log begins. What it asked for as it joined
is what it asked for later, if it did, else what another member of its group asked for, else Kafka's defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.measures import Born, unowned_each_ms
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.what_if.behaviour import Behaviour
from coordinator_udf.simulation.what_if.processes import LoggedProcess
from coordinator_udf.simulation.what_if.properties import asks_for
from coordinator_udf.simulation.what_if.rebalances import SESSION_EXPIRED, Rebalance

#: So long before their log, or before the first of them stopped polling, they join. With a quarter and with half of it
#: the same is foretold of four recorded logs, cut in the middle; a coordinator that answers once in five seconds takes
#: 55 s until members of KIP-848 have handed their partitions over.
LEAD_MS = 120_000
#: The leader joins first, and so is the leader.
_BEHIND_LEADER_MS = 200


def join_before(behaviours: Sequence[Behaviour], log_begins_ms: float) -> list[Behaviour]:
    """Lets the members join before the log begins that are older than it; returns all, in their order."""
    older = [one for one in behaviours if one.process.is_older]
    if not older:
        return list(behaviours)
    first_ms = min([log_begins_ms, *(stall.at_ms for one in older for stall in one.stalls)])
    leader_id = _leader_id(behaviours)

    def joins_ms(process: LoggedProcess) -> float:
        return first_ms - LEAD_MS + (0 if leader_id in process.member_ids else _BEHIND_LEADER_MS)

    return [
        replace(one, start_ms=joins_ms(one.process), joined_ms=joins_ms(one.process)) if one.process.is_older else one
        for one in behaviours
    ]


def _leader_id(behaviours: Sequence[Behaviour]) -> str | None:
    """Returns the first leader that the log tells of: it has been that for as long as it is a member."""
    joins = [entry for one in behaviours for entry in one.process.of("JoinGroup")]
    formed = [entry for entry in joins if entry.response and not entry.response["errorCode"]]
    first = min(formed, key=lambda entry: entry.answered_us, default=None)
    return None if first is None else (first.response or {}).get("leader")


def unseen_members(behaviours: Sequence[Behaviour], rebalances: Sequence[Rebalance]) -> Iterator[str]:
    """Yields in words that somebody was expelled whom the log doesn't show: killed before it begins."""
    first = rebalances[0] if rebalances and any(one.process.is_older for one in behaviours) else None
    if first is None or first.trigger != SESSION_EXPIRED:
        return
    ends_ms = [time for one in behaviours for time in (one.crash_ms, one.close_ms) if time is not None]
    ends_ms += [stall.at_ms for one in behaviours for stall in one.stalls]
    ends_ms += [hang.at_ms for one in behaviours for hang in one.hangs]
    if min(ends_ms, default=first.start_ms) >= first.start_ms:
        at = datetime.fromtimestamp(first.start_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        yield f"who was expelled at {at}, for no request of that member is in the log: it is left out"


def formed_too_late(
    plan: WorldPlan, partitions: Born, as_they_were: Sequence[History], as_changed: Sequence[History]
) -> Iterator[str]:
    """Yields in words that changed settings hold a group up so long that it isn't there when its log begins."""
    before = as_they_were[0], as_changed[0]
    if plan.begin_ms and _without_owner(before[1], partitions) - _without_owner(before[0], partitions):
        yield (
            f"what the changed settings make of a group that is there: under them it isn't formed within {LEAD_MS} ms, "
            "and so not when the log begins; figures hold that against them"
        )


def _without_owner(history: History, partitions: Born) -> set[TopicPartition]:
    """Returns the partitions that have no owner when a world's history begins."""
    unowned = unowned_each_ms(history.events, partitions, (history.start_ms, history.start_ms + 1))
    return {partition for partition, time_ms in unowned.items() if time_ms}


def what_they_had(behaviours: Sequence[Behaviour], processes: Sequence[LoggedProcess]) -> Iterator[str]:
    """Yields in words what the log doesn't tell of the members that are older than it."""
    older = [one.process for one in behaviours if one.process.is_older]
    if not older:
        return
    names = ", ".join(f"{process.name} ({process.run})" for process in older)
    yield (
        f"how {names} joined and which partitions they had: the log begins later, so they are taken to have joined "
        "together before it, and nothing is counted from before it"
    )
    for process in older:
        asked = asks_for(process, processes)
        if asked is None:
            yield f"how {process.name} ({process.run}) was set up when it joined: Kafka's defaults are taken"
        elif asked[0] is not process:
            other = asked[0]
            yield (
                f"how {process.name} ({process.run}) was set up when it joined: it is taken to be set up as "
                f"{other.name} ({other.run})"
            )
