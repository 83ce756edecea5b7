"""The rebalance of a classic group: its two phases, how they begin, and what ends them.

Source: GroupMetadataManager (prepareRebalance, completeClassicGroupJoin and the timers' operations).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordinator_udf.groups.classic.answers import (
    answer_join,
    answer_sync,
    extensions_told,
    generation_body,
    joined_members,
    refuse_join,
    unpark_join,
)
from coordinator_udf.groups.classic.stored_group import write_group
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic import ClassicGroup, Member, ResyncMode
from coordinator_udf.groups.model.classic_states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    GroupEvent,
)
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.java_order.tables import INITIAL_TABLE, grown_table, hash_order
from coordinator_udf.protocol.answer_json import AnswerTemplate
from coordinator_udf.protocol.errors import Errors

#: Members name their rebalance timeout as they like, and log time stands still while a timer fires: with one of 0 the
#: same timer would fire for ever. Kafka's fires as fast as it can until wall time has ended the sessions.
_LEAST_EXTENSION_MS = 50

_NONE = int(Errors.NONE)


def restart_session(ctx: Context, group: ClassicGroup, member: Member, timeout_ms: int | None = None) -> None:
    """Begins the member's session anew."""
    timeout = member.session_timeout_ms if timeout_ms is None else timeout_ms
    ctx.timers.arm_session(group.group_id, member.member_id, ctx.now_ms + timeout)


def restart_sessions(ctx: Context, group: ClassicGroup, members: Iterable[Member]) -> None:
    """Begins these members' sessions anew."""
    now_ms = ctx.now_ms
    ctx.timers.arm_sessions(group.group_id, [(m.member_id, now_ms + m.session_timeout_ms) for m in members])


def cancel_session(ctx: Context, group_id: str, member_id: str) -> None:
    """Disarms the member's session timer."""
    ctx.timers.cancel(TimerKey(timers.SESSION, group_id, member_id))


# -- the join phase -----------------------------------------------------------------------------------------------


def rebalance_or_complete_join(ctx: Context, group: ClassicGroup, event: GroupEvent, reason: str) -> None:
    """Begins a rebalance; in one that is under way, sees whether its join phase is now complete."""
    if group.can_rebalance():
        prepare_rebalance(ctx, group, event, reason)
    else:
        maybe_complete_join(ctx, group)


def prepare_rebalance(ctx: Context, group: ClassicGroup, event: GroupEvent, reason: str) -> None:
    """Begins the join phase. A new group waits for the initial delay, others until all members have joined again."""
    if group.state is COMPLETING_REBALANCE:
        reset_assignment(ctx, group, Errors.REBALANCE_IN_PROGRESS)
    elif group.resync is not ResyncMode.NONE:
        # Who has the new assignment keeps it until it joins, as all keep the one that they have.
        propagate_assignment(ctx, group, Errors.REBALANCE_IN_PROGRESS)
    group.resync, group.sync_failure = ResyncMode.NONE, None
    group.pending_sync.clear()
    ctx.timers.cancel(TimerKey(timers.SYNC, group.group_id))
    if group.is_empty():
        delay_ms = ctx.settings.group_initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
        _arm_initial_join(ctx, group, delay_ms, remaining_ms)
        ctx.move(group, event, reason)
        return
    ctx.move(group, event, reason)
    if group.has_all_members_joined():
        complete_join(ctx, group, GroupEvent.ALL_JOINED)
    else:
        _arm_join(ctx, group)


def maybe_complete_join(ctx: Context, group: ClassicGroup) -> None:
    """Ends the join phase if all members have joined. The first one of a new group ends by its timer only."""
    if group.state is PREPARING_REBALANCE and group.previous_state is not EMPTY and group.has_all_members_joined():
        complete_join(ctx, group, GroupEvent.ALL_JOINED)


def complete_join(ctx: Context, group: ClassicGroup, event: GroupEvent) -> None:
    """Ends the join phase: who hasn't joined is out (static members stay), and a new generation begins."""
    ctx.timers.cancel(TimerKey(timers.JOIN, group.group_id))
    recorded = [member.awaiting_join for member in group.members.values() if member.awaiting_join is not None]
    # Mostly nobody is.
    away = () if len(recorded) == len(group.members) else group.in_order()
    absent = _java_set(m.member_id for m in away if m.awaiting_join is None and m.group_instance_id is None)
    for member_id in absent:
        ctx.note_member(group, GroupEvent.JOIN_EXPIRED, group.members[member_id])
        group.remove(member_id)
        cancel_session(ctx, group.group_id, member_id)
    if group.state is DEAD:
        return
    leader = next((parked.recorded_leader for parked in recorded if parked.recorded_leader is not None), None)
    if not group.elect_joined_leader(leader) and group.members:
        # Only static members are left and none has joined: the phase goes on until one does or their sessions end.
        _arm_join(ctx, group, _LEAST_EXTENSION_MS)
        return
    protocol = next((parked.recorded_protocol for parked in recorded if parked.recorded_protocol is not None), None)
    _begin_generation(ctx, group, event, protocol, absent)


def _begin_generation(
    ctx: Context, group: ClassicGroup, event: GroupEvent, recorded_protocol: str | None, absent: list[str]
) -> None:
    group.generation_id += 1
    group.resync_epoch = 0
    group.pending_sync.clear()
    group.protocol_name = group.select_protocol(recorded_protocol) if group.members else None
    group.subscribed_topics = group.compute_subscribed_topics()
    if not group.members:
        ctx.move(group, GroupEvent.EMPTIED)
        # If it is too large the last generation stays in the log; loaded from there, its members would soon expire.
        if ctx.fits_group(group, {}):
            write_group(ctx, group)
        return
    ctx.move(group, event, f"removed members that haven't joined: {', '.join(absent)}" if absent else None)
    members = group.in_order()
    _tell_generation(ctx, group, members)
    for member in members:
        member.is_new = False
    group.pending_sync.update(dict.fromkeys([member.member_id for member in members], 1))
    restart_sessions(ctx, group, members)
    sync_key = TimerKey(timers.SYNC, group.group_id)
    ctx.timers.arm(sync_key, ctx.now_ms + group.rebalance_timeout_ms(), group.generation_id)


def _tell_generation(ctx: Context, group: ClassicGroup, members: Sequence[Member]) -> None:
    """Answers all who have joined, the leader with who is in the group."""
    plain = generation_body(group, "", with_members=False)
    extended = {**plain, **extensions_told(group)}
    templates: dict[tuple[int, bool], AnswerTemplate] = {}
    group_id, leader, answer = group.group_id, group.leader, ctx.answer_in_json
    for member in members:
        member_id = member.member_id
        if member_id == leader:
            told = extended if member.client_extensions else plain
            body = {**told, "memberId": member_id, "members": joined_members(group, members)}
            answer_join(ctx, group, member, body)
            continue
        parked = unpark_join(group, member)
        if parked is None:
            continue
        version = parked.api_version
        kind = version, member.client_extensions
        template = templates.get(kind)
        if template is None:
            told = extended if member.client_extensions else plain
            template = templates[kind] = AnswerTemplate("JoinGroup", version, told, "memberId")
        text = template.fill(member_id)
        answer(parked.request_id, "JoinGroup", version, text, error_code=_NONE, group_id=group_id, member_id=member_id)


def _java_set(ids: Iterable[str]) -> list[str]:
    """Returns the ids in the order of a Java set made of them: removing the leader makes the order matter."""
    known = list(ids)
    return hash_order(known, grown_table(INITIAL_TABLE, len(known)))


def _arm_join(ctx: Context, group: ClassicGroup, at_least_ms: int = 0) -> None:
    delay_ms = max(group.rebalance_timeout_ms(), at_least_ms)
    ctx.timers.arm(TimerKey(timers.JOIN, group.group_id), ctx.now_ms + delay_ms)


def _arm_initial_join(ctx: Context, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
    ctx.timers.arm(TimerKey(timers.JOIN, group.group_id), ctx.now_ms + delay_ms, delay_ms, remaining_ms)


# -- the sync phase -----------------------------------------------------------------------------------------------


def reset_assignment(ctx: Context, group: ClassicGroup, error: Errors) -> None:
    """Takes everybody's assignment away; who waits for one gets the error."""
    for member in group.members.values():
        member.assignment = None
    propagate_assignment(ctx, group, error)


def propagate_assignment(ctx: Context, group: ClassicGroup, error: Errors) -> None:
    """Answers all members that wait for their assignment; their sessions begin anew."""
    waiting = [member for member in group.in_order() if member.awaiting_sync is not None]
    for member in waiting:
        answer_sync(ctx, group, member, error)
    restart_sessions(ctx, group, waiting)


# -- timers -------------------------------------------------------------------------------------------------------


def join_expired(ctx: Context, group: ClassicGroup, data: tuple[int, ...]) -> None:
    """Ends the join phase; a new group that got new members meanwhile is given more time."""
    if not data:
        complete_join(ctx, group, GroupEvent.JOIN_EXPIRED)
        return
    delay_ms, remaining_ms = data
    if group.new_member_added and remaining_ms != 0:
        group.new_member_added = False
        next_delay_ms = min(ctx.settings.group_initial_rebalance_delay_ms, remaining_ms)
        _arm_initial_join(ctx, group, next_delay_ms, max(remaining_ms - delay_ms, 0))
    else:
        complete_join(ctx, group, GroupEvent.JOIN_EXPIRED)


def sync_expired(ctx: Context, group: ClassicGroup, generation_id: int) -> None:
    """Removes members that haven't sent their SyncGroup in time; the group rebalances without them."""
    if generation_id != group.generation_id or not (group.pending_sync or group.sync_failure):
        return
    if group.state not in (COMPLETING_REBALANCE, STABLE):
        return
    if not group.pending_sync:
        reason = f"Leader {group.leader} that could compute no assignment has not joined again"
        prepare_rebalance(ctx, group, GroupEvent.SYNC_FAILURE_EXPIRED, reason)
        return
    pending = _java_set(group.pending_sync)
    for member_id in pending:
        if member_id in group.members:
            ctx.note_member(group, GroupEvent.SYNC_EXPIRED, group.members[member_id])
        group.remove(member_id)
        cancel_session(ctx, group.group_id, member_id)
    reason = f"Removing [{', '.join(pending)}] on pending sync request expiration"
    prepare_rebalance(ctx, group, GroupEvent.SYNC_EXPIRED, reason)


def session_expired(ctx: Context, group: ClassicGroup, member_id: str) -> None:
    """Removes a member, or an id that was given and never used, that was silent for too long."""
    if group.state is DEAD:
        return
    if member_id in group.pending_join:
        group.remove(member_id)
        if group.state is PREPARING_REBALANCE and group.has_all_members_joined():
            complete_join(ctx, group, GroupEvent.ALL_JOINED)
        return
    member = group.members.get(member_id)
    if member is None or member.has_satisfied_heartbeat():
        return
    refuse_join(ctx, group, member, Errors.UNKNOWN_MEMBER_ID)
    ctx.note_member(group, GroupEvent.SESSION_EXPIRED, member)
    group.remove(member_id)
    if group.state in (STABLE, COMPLETING_REBALANCE):
        reason = f"removing member {member_id} on heartbeat expiration."
        rebalance_or_complete_join(ctx, group, GroupEvent.SESSION_EXPIRED, reason)
    elif group.state is PREPARING_REBALANCE and group.has_all_members_joined():
        complete_join(ctx, group, GroupEvent.ALL_JOINED)
