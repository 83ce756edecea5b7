"""What happens when a timer of a group fires, by the kind of the group that is there then.

A group may have become one of the other kind since the timer was armed; a timer that this kind doesn't know is void.
Source: GroupMetadataManager (the operations given to the timer).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from coordinator_udf.groups.classic.rebalance import join_expired, session_expired, sync_expired
from coordinator_udf.groups.consumer.change import tell_resolved
from coordinator_udf.groups.consumer.client_assignment import ask_another
from coordinator_udf.groups.consumer.membership import fence_members
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic import ClassicGroup, Member
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.groups.model.consumer import ConsumerGroup, ConsumerMember
from coordinator_udf.groups.model.timers import Timer, TimerKey
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.requests import Delay, Downtime, KeptTimer

Handler = Callable[[Context, GroupStore, Any, Timer], None]


#: After so long a timer is tried again whose records were too large for the log: the retryBackoff of Kafka's
#: CoordinatorTimer.
_RETRY_MS = 500


def fire(ctx: Context, store: GroupStore, timer: Timer) -> None:
    """Lets a group's timer take effect."""
    group = store.get(timer.key.group_id)
    handler = None if group is None else _HANDLERS[type(group)].get((timer.key.kind, timer.key.member_id != ""))
    if group is not None and handler is not None:
        member = group.members.get(timer.key.member_id)
        if member is not None:
            ctx.begin_timer(ctx.cause._replace(client_id=member.client_id, client_host=member.client_host))
        handler(ctx, store, group, timer)


def stand_still(ctx: Context, store: GroupStore, stood: Downtime) -> None:
    """Puts all timers off, for nobody could be heard from now until the end of a downtime.

    What time a timer had left it has again. A member's session begins anew, as when Kafka loads a shard; or, if clients
    stayed connected, it ends when it would have, but not before they had time to be heard.
    """
    stood_ms = stood.until_ms - ctx.now_ms
    for timer in ctx.timers.in_order():
        deadline_ms = timer.deadline_ms + stood_ms
        if timer.key.kind == timers.SESSION:
            session_ms = _session_ms(ctx, store, timer)
            heard_ms = stood.heard_within_ms
            if heard_ms is None:
                deadline_ms = max(deadline_ms, stood.until_ms + session_ms + stood.grace_ms)
            else:
                deadline_ms = max(timer.deadline_ms, stood.until_ms + min(session_ms or heard_ms, heard_ms))
        ctx.timers.arm(timer.key, deadline_ms, *timer.data)


def delay_regexes(ctx: Context, delayed: Delay) -> None:
    """Lets what a group's next request finds out about regular expressions be told to the group later."""
    ctx.resolving.pop(delayed.group_id, None)
    ctx.timers.arm(TimerKey(timers.REGEX, delayed.group_id), delayed.until_ms)


def delay_timers(ctx: Context, delayed: Delay) -> None:
    """Puts off timers of a group, and of the shard itself, that are due before a time; they keep their order."""
    for timer in ctx.timers.in_order():
        if timer.key.group_id in {delayed.group_id, ""} and timer.deadline_ms <= delayed.until_ms:
            ctx.timers.arm(timer.key, delayed.until_ms, *timer.data)


def keep_timer(ctx: Context, kept: KeptTimer) -> None:
    """Lets a member's timer fire that was put off or disarmed.

    Kafka does that to the timers of members of the classic protocol once the request's records are written, so one that
    is due before fires. Source: GroupMetadataManager.classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup.
    """
    ctx.timers.arm(TimerKey(kept.kind, kept.group_id, kept.member_id), kept.until_ms)


def _session_ms(ctx: Context, store: GroupStore, timer: Timer) -> int:
    """Returns how long a member's session is; 0 for one that isn't a member yet."""
    group = store.get(timer.key.group_id)
    member = None if group is None else group.members.get(timer.key.member_id)
    if isinstance(member, Member):
        return member.session_timeout_ms
    if isinstance(member, ConsumerMember):
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return ctx.group_setting(timer.key.group_id, "consumer_session_timeout_ms")
    return 0


def _classic_session(ctx: Context, _: GroupStore, group: ClassicGroup, timer: Timer) -> None:
    session_expired(ctx, group, timer.key.member_id)


def _classic_join(ctx: Context, _: GroupStore, group: ClassicGroup, timer: Timer) -> None:
    join_expired(ctx, group, timer.data)


def _classic_sync(ctx: Context, _: GroupStore, group: ClassicGroup, timer: Timer) -> None:
    sync_expired(ctx, group, *timer.data)


def _fence(
    ctx: Context, store: GroupStore, group: ConsumerGroup, timer: Timer, *, event: GroupEvent, because: str
) -> None:
    member = group.members.get(timer.key.member_id)
    if member is None or (timer.data and timer.data[0] != member.member_epoch):
        return
    try:
        reason = f"member {member.member_id} fenced: {because.format(member=member)}"
        fence_members(ctx, store, group, [member], event, reason=reason)
    except ApiError as refused:
        # Where the group can't become a classic one, for a subscription can't be read, Kafka leaves the member there.
        # What is too large for the log is tried again (CoordinatorTimerImpl).
        if refused.error is Errors.UNKNOWN_SERVER_ERROR:
            ctx.timers.arm(timer.key, ctx.now_ms + _RETRY_MS, *timer.data)


def _computation_late(ctx: Context, store: GroupStore, group: ConsumerGroup, timer: Timer) -> None:
    """Asks another member: this one isn't fenced, for only a session's end says that a member is gone."""
    try:
        ask_another(ctx, store, group)
    except ApiError:
        # Too large for the log: tried again, as the others are.
        ctx.timers.arm(timer.key, ctx.now_ms + _RETRY_MS, *timer.data)


#: Kind of group -> (kind of timer, whether it is a member's) -> handler.
_HANDLERS: Mapping[type, Mapping[tuple[str, bool], Handler]] = {
    ClassicGroup: {
        (timers.SESSION, True): _classic_session,
        (timers.JOIN, False): _classic_join,
        (timers.SYNC, False): _classic_sync,
    },
    ConsumerGroup: {
        (timers.SESSION, True): partial(_fence, event=GroupEvent.SESSION_EXPIRED, because="the member session expired"),
        (timers.REBALANCE, True): partial(
            _fence,
            event=GroupEvent.REBALANCE_EXPIRED,
            because="it failed to transition from epoch {member.member_epoch} within {member.rebalance_timeout_ms}ms",
        ),
        (timers.JOIN, True): partial(
            _fence,
            event=GroupEvent.JOIN_EXPIRED,
            because="the classic member failed to join within the rebalance timeout",
        ),
        (timers.SYNC, True): partial(
            _fence, event=GroupEvent.SYNC_EXPIRED, because="the member failed to sync within timeout"
        ),
        (timers.COMPUTE, False): _computation_late,
        (timers.REGEX, False): tell_resolved,
    },
}
