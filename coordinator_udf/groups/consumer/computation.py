"""Who computes a consumer group's assignment in KIP-848's client-side mode, and until when.

One member at a time. It is told with an answer to a heartbeat, and from then on it has its rebalance timeout. Who is
late, fails or goes makes room for the next one and stays a member. Pure functions; `change` and `timer_handlers` write
what they decide. Source: KIP-848 (client-side mode).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from coordinator_udf.groups.consumer.client_assignors import Choice
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.groups.model.client_assignment import Computation, Departure
from coordinator_udf.groups.model.consumer import ConsumerGroup
from coordinator_udf.groups.model.timers import TimerKey

#: They stand in a record that each of them writes anew, so that n departures write n * n / 2 entries: half a million
#: here, a quarter of that with half, four times with double. The oldest are left out.
MOST_DEPARTURES: Final = 1_000


def assign_to_member(
    computation: Computation | None, choice: Choice | None, group_epoch: int, *, asking: str = ""
) -> Computation | None:
    """Decides who computes.

    Who was chosen stays it as long as it is there, can run the assignor, and wasn't passed over. Else the member that
    is asking is chosen, or the first by id, of those that weren't late and didn't fail.

    Args:
        computation: the one under way.
        choice: the assignor and who can run it; None: the coordinator assigns.
        asking: the member whose heartbeat this is, "" if it is none.
    """
    if choice is None:
        return None
    if computation is None:
        return _chosen(Computation(choice.name, choice.version, "", group_epoch), choice, asking)
    if computation.assignor != choice.name:
        # Another one may not fail where this one did.
        computation = replace(computation, assignor=choice.name, failed=(), error=0)
    if computation.version != choice.version:
        computation = replace(computation, version=choice.version)
    passed = {*computation.late, *computation.failed}
    if computation.member_id in choice.able and computation.member_id not in passed:
        return computation
    if computation.group_epoch != group_epoch:
        computation = replace(computation, group_epoch=group_epoch, failed=())
    return _chosen(computation, choice, asking)


def _chosen(computation: Computation, choice: Choice, asking: str) -> Computation:
    able = [member_id for member_id in choice.able if member_id not in computation.failed]
    free = [member_id for member_id in able if member_id not in computation.late]
    if able and not free:
        # All were late: they are asked once more.
        computation, free = replace(computation, late=()), able
    if not free:
        computation, free = replace(computation, late=(), failed=()), list(choice.able)
    member_id = asking if asking in free else next(iter(free), "")
    return replace(computation, member_id=member_id, told_ms=0)


def has_successor(computation: Computation, choice: Choice) -> bool:
    """Returns whether a member is left to ask that hasn't failed for this epoch."""
    return any(member_id not in computation.failed for member_id in choice.able)


def told(computation: Computation, now_ms: int) -> Computation:
    """Returns the computation with its member told, if it wasn't yet."""
    return replace(computation, told_ms=now_ms) if computation.told_ms == 0 else computation


def late(computation: Computation) -> Computation:
    """Returns the computation without its member, which didn't install an assignment in time."""
    return replace(computation, late=(*computation.late, computation.member_id), member_id="", told_ms=0)


def failed(computation: Computation, group_epoch: int, error: int, *, refused: bool) -> Computation:
    """Returns the computation without its member, which failed.

    Args:
        group_epoch: the group's epoch now; who failed before it came may be asked again.
        error: with what.
        refused: whether an assignment came, and was refused.
    """
    before = computation.failed if computation.group_epoch == group_epoch else ()
    return replace(
        computation,
        failed=(*before, computation.member_id),
        group_epoch=group_epoch,
        error=error,
        refusals=computation.refusals + refused,
        member_id="",
        told_ms=0,
    )


def with_departures(
    computation: Computation, member_ids: Iterable[str], group_epoch: int, replaced_by: str = ""
) -> Computation:
    """Returns the computation with the note that members went, ``group_epoch`` being the first without them.

    Only the newest are kept: an assignment that names one of the others is refused, and asked for again.
    """
    gone = {member_id: Departure(member_id, group_epoch, replaced_by) for member_id in member_ids}
    kept = [each for each in computation.departures if each.member_id not in gone]
    return replace(computation, departures=(*kept, *gone.values())[-MOST_DEPARTURES:])


def watch(ctx: Context, group: ConsumerGroup, before: Computation | None) -> None:
    """Arms or cancels the timer of a computation that was written, and puts out a row if a member was told.

    Args:
        before: the computation that the group had.
    """
    now = group.computation
    key = TimerKey(timers.COMPUTE, group.group_id)
    if now is None or now.told_ms == 0:
        ctx.timers.cancel(key)
        return
    if before is not None and (before.member_id, before.told_ms) == (now.member_id, now.told_ms):
        return
    arm(ctx, group, now)
    reason = f"member {now.member_id} is to compute with the assignor {now.assignor} for epoch {group.group_epoch}"
    ctx.note(group, group.state, GroupEvent.ASSIGNMENT_ASKED, reason)


def arm(ctx: Context, group: ConsumerGroup, computation: Computation) -> None:
    """Arms the timer of a computation whose member was told."""
    member = group.members.get(computation.member_id)
    if member is not None:
        deadline_ms = max(ctx.now_ms, computation.told_ms + member.rebalance_timeout_ms)
        ctx.timers.arm(TimerKey(timers.COMPUTE, group.group_id), deadline_ms)
