"""Finds members that commit automatically and give partitions up without having committed what was read of them."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_udf.simulation.history import ApplicationEvent, History
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.short_polls import polls_too_shortly
from coordinator_udf.simulation.violation import Violation

#: How long a commit before partitions are given up may be over by then, for a member that polls all the time.
_FRESH_MS = 1_000
#: After a refused commit it isn't known what its member makes of it.
_REFUSED_MS = 5_000
_COOPERATIVE = "CooperativeStickyAssignor"


def commits_first_ms(plan: WorldPlan) -> dict[str, int]:
    """Returns how old the last commit of processes may be when their applications are to give partitions up.

    Of those that commit automatically, keep to the protocol, poll all the time, have callbacks that are over at once,
    and of whose requests none gets lost or is late. A cooperative member commits when it joins, and is told what to
    give up after that. One whose polls are too short for its pattern commits, too, some polls before it joins.
    """
    if plan.network.loss or plan.deletes_topics or not plan.is_always_served:
        return {}
    removed = {removal.process for removal in plan.removals}
    return {
        member.name: _FRESH_MS + 2 * (member.poll_ms + member.process_ms) + plan.cadence_ms
        for member in plan.members
        if member.name not in removed and _commits(member) and not polls_too_shortly(member, plan.network)
    }


def _commits(member: MemberPlan) -> bool:
    config = member.config()
    # A group takes what all its members name, and of that what they name first.
    is_eager = not config.partition_assignment_strategy[0].endswith(_COOPERATIVE)
    # Where callbacks take time, one waits for another.
    keeps_up = member.habit is None and member.is_always_heard and not member.stalls and not member.callback_ms
    return config.enable_auto_commit and keeps_up and (member.is_kip_848 or is_eager)


def uncommitted(history: History) -> Iterator[Violation]:
    """Yields where an application is to give partitions up, and its member has not committed right before."""
    if not history.commits_first_ms:
        return
    closing: set[str] = set()
    for event in history.events:
        process = event.process
        if event.event == "close":
            closing.add(process)
        elif event.event == "start":
            closing.discard(process)
        if event.event != "revoked" or not event.partitions or process in closing:
            continue
        fresh_ms = history.commits_first_ms.get(process)
        if fresh_ms is None or history.refuses_commits(event.group_id, event.ts_ms - _REFUSED_MS, event.ts_ms):
            continue
        if not _has_committed(history, event, fresh_ms):
            detail = f"{process} is to give partitions up, and hasn't committed for {fresh_ms} ms"
            yield Violation(event.ts_ms, event.group_id, "not committed", detail)


def _has_committed(history: History, event: ApplicationEvent, fresh_ms: int) -> bool:
    times_ms = history.committed_ms.get(event.process, ())
    return any(event.ts_ms - fresh_ms <= ts_ms <= event.ts_ms for ts_ms in times_ms)
