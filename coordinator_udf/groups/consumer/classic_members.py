"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

They are led by what their protocol knows: the generation is the member's epoch, a rebalance is asked for by
REBALANCE_IN_PROGRESS, and what to give up is what the assignment no longer has. Source: GroupMetadataManager
(classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup and their neighbours).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from coordinator_udf.groups.classic.answers import join_body, sync_body
from coordinator_udf.groups.classic.heartbeat_leave import member_answer
from coordinator_udf.groups.consumer.change import Change
from coordinator_udf.groups.consumer.convert import can_downgrade_replacing, convert_to_classic, may_mix
from coordinator_udf.groups.consumer.membership import (
    check_room,
    fence_members,
    join_dynamic,
    join_static,
    known_static,
    note_come,
)
from coordinator_udf.groups.consumer.regex import RegexChange
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.member_ids import new_member_id
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.groups.model.consumer import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.java_order.tables import int_order
from coordinator_udf.java_order.walks import assigned_in_kafka_order
from coordinator_udf.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    MalformedConsumerProtocol,
    Subscription,
    decode_subscription,
    decode_version,
    encode_assignment,
)
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import JoinGroup, MemberIdentity, SyncGroup

_REQUIRES_KNOWN_MEMBER_ID = 4


class ClassicJoin:
    """One JoinGroup on its way through a consumer group with members."""

    def __init__(self, ctx: Context, store: GroupStore, group: ConsumerGroup, row: Request, body: JoinGroup) -> None:
        """Takes a request that nothing was done with yet."""
        self.ctx = ctx
        self.store = store
        self.group = group
        self.row = row
        self.body = body
        self.is_unknown = not body.member_id
        self.member_id = body.member_id or new_member_id(row, body.group_instance_id)
        self.protocols = tuple((protocol.name, protocol.metadata) for protocol in body.protocols)
        self.rebalance_timeout_ms = body.session_timeout_ms if row.api_version == 0 else body.rebalance_timeout_ms

    def handle(self) -> None:
        """Answers the request.

        Raises:
            ApiError: it is refused.
        """
        ctx, group, body = self.ctx, self.group, self.body
        if not may_mix(ctx):
            raise ApiError(Errors.INCONSISTENT_GROUP_PROTOCOL)
        check_room(ctx, group, self.member_id)
        if not group.supports_classic_protocols(body.protocol_type, (name for name, _ in self.protocols)):
            raise ApiError(Errors.INCONSISTENT_GROUP_PROTOCOL)
        knows_id = body.group_instance_id is not None or not self.is_unknown
        if not knows_id and self.row.api_version >= _REQUIRES_KNOWN_MEMBER_ID:
            self._answer(join_body(error=Errors.MEMBER_ID_REQUIRED, member_id=self.member_id))
            return
        change = Change(ctx, self.store, group)
        try:
            self._join(change)
        finally:
            change.resolve_regexes()

    def _join(self, change: Change) -> None:
        ctx, group, body = self.ctx, self.group, self.body
        if body.group_instance_id is None:
            member = join_dynamic(group, self.member_id, create=True)
        else:
            member = join_static(change, self.member_id, body.group_instance_id, create=self.is_unknown, classic=True)
        existing = group.static_member(body.group_instance_id)
        downgrade = existing is not None and can_downgrade_replacing(ctx, group, existing)
        subscription = self._subscription()
        updated = self._wishes(member, subscription)
        names_changed = change.update_member(member, updated)
        changed = change.update_regex(member, updated) is not RegexChange.NONE or names_changed
        epoch = change.update_epoch(member, updated, bump=changed)
        owned = {
            ctx.topics[name].id: partitions
            for name, partitions in subscription.owned_partitions.items()
            if name in ctx.topics
        }
        if downgrade:
            stale = group.assignment_epoch < epoch
            if not stale:
                target = group.target(updated.member_id, updated.instance_id)
                updated = change.reconcile(
                    updated, group.assignment_epoch, target, subscription_changed=changed, owned=owned
                )
            self._downgrade(change, updated, stale=stale)
        else:
            updated = change.note_epochs(
                member,
                updated,
                epoch,
                joined=existing is None and member.member_id not in group.members,
                subscribed=changed,
            )
            target_epoch, target = change.update_target(member, updated, epoch)
            updated = change.reconcile(updated, target_epoch, target, subscription_changed=changed, owned=owned)
            known = member.member_id in group.members
            change.write(GroupEvent.MEMBER_UPDATED if known else GroupEvent.MEMBER_ADDED)
            note_come(change, existing, updated, known=known)
            self._arm(updated)
        self._answer(
            join_body(
                member_id=updated.member_id,
                generation_id=updated.member_epoch,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocol_name=self.protocols[0][0],
            )
        )

    def _subscription(self) -> Subscription:
        try:
            return decode_subscription(self.protocols[0][1])
        except MalformedConsumerProtocol as error:
            # Kafka's coordinator throws here.
            raise ApiError(Errors.UNKNOWN_SERVER_ERROR, str(error)) from None

    def _wishes(self, member: ConsumerMember, subscription: Subscription) -> ConsumerMember:
        body, timeout_ms = self.body, self.rebalance_timeout_ms
        return replace(
            member,
            instance_id=member.instance_id if body.group_instance_id is None else body.group_instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            subscribed_topic_names=tuple(sorted(set(subscription.topics))),
            # A classic member can't say one.
            subscribed_topic_regex="",
            client_id=self.row.client_id or "",
            client_host=self.row.client_host or "",
            classic=ClassicMetadata(body.session_timeout_ms, self.protocols),
            client_assignors=(),
        )

    def _downgrade(self, change: Change, joining: ConsumerMember, *, stale: bool) -> None:
        reason = f"Downgrade group {self.group.group_id} from consumer to classic with stale assignment."
        convert_to_classic(
            self.ctx,
            self.store,
            self.group,
            joining=joining,
            records=change.records,
            rebalance_reason=reason if stale else None,
        )
        self.ctx.timers.cancel(self._key(timers.JOIN, joining.member_id))

    def _arm(self, member: ConsumerMember) -> None:
        """Arms the timer within which the member has to fetch its assignment."""
        ctx = self.ctx
        ctx.timers.cancel(self._key(timers.JOIN, member.member_id))
        ctx.timers.arm(self._key(timers.SESSION, member.member_id), ctx.now_ms + self.body.session_timeout_ms)
        ctx.timers.arm(self._key(timers.SYNC, member.member_id), ctx.now_ms + self.rebalance_timeout_ms)

    def _key(self, kind: str, member_id: str) -> TimerKey:
        return TimerKey(kind, self.group.group_id, member_id)

    def _answer(self, answer: dict[str, Any]) -> None:
        row = self.row
        self.ctx.answer(
            row.request_id, "JoinGroup", row.api_version, answer, group_id=row.group_id, member_id=answer["memberId"]
        )


def sync_classic_member(ctx: Context, group: ConsumerGroup, row: Request, body: SyncGroup) -> None:
    """Answers a SyncGroup with what the member has.

    Raises:
        ApiError: it is refused.
    """
    member = _classic_member(group, body.member_id, body.group_instance_id, body.generation_id)
    classic = member.classic
    if classic is None:
        raise ApiError(Errors.UNKNOWN_MEMBER_ID)
    name, metadata = classic.protocols[0]
    if body.protocol_type not in {None, CONSUMER_PROTOCOL_TYPE} or body.protocol_name not in {None, name}:
        raise ApiError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _arm_join(ctx, group, member)
        raise ApiError(Errors.REBALANCE_IN_PROGRESS)
    ctx.timers.cancel(TimerKey(timers.SYNC, group.group_id, member.member_id))
    _restart_session(ctx, group, member, classic)
    names = {topic.id: topic.name for topic in ctx.topics.values()}
    partitions = {
        names[topic_id]: int_order(partitions)
        for topic_id, partitions in assigned_in_kafka_order(member.assigned).items()
        if topic_id in names
    }
    answer: dict[str, Any] = {
        **sync_body(Errors.NONE, body.protocol_type, body.protocol_name),
        "assignment": encode_assignment(partitions, decode_version(metadata), _user_data(group, member)),
    }
    ctx.answer(row.request_id, "SyncGroup", row.api_version, answer, group_id=row.group_id, member_id=member.member_id)


def _user_data(group: ConsumerGroup, member: ConsumerMember) -> bytes | None:
    """Returns what an assignor of the members tells the one of a member of the classic protocol; None for nothing."""
    metadata = group.target_metadata.get(member.member_id)
    return None if metadata is None or member.member_epoch != group.assignment_epoch else metadata[1]


def heartbeat_classic_member(
    ctx: Context, group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation_id: int
) -> Errors:
    """Returns the answer to a Heartbeat, which begins the member's session anew.

    Raises:
        ApiError: it is refused.
    """
    member = _classic_member(group, member_id, group_instance_id, generation_id)
    if member.classic is not None:
        _restart_session(ctx, group, member, member.classic)
    waits = member.state is MemberState.UNRELEASED_PARTITIONS
    if (
        member.member_epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (waits and not group.is_waiting_for_partitions(member))
    ):
        _arm_join(ctx, group, member)
        return Errors.REBALANCE_IN_PROGRESS
    return Errors.NONE


def leave_classic_members(
    ctx: Context, store: GroupStore, group: ConsumerGroup, leaving: tuple[MemberIdentity, ...]
) -> list[dict[str, Any]]:
    """Lets members go, each with an answer of its own.

    Raises:
        ApiError: the whole request is refused.
    """
    answers = []
    left: dict[str, ConsumerMember] = {}
    for identity in leaving:
        error = Errors.NONE
        try:
            member = _leaving_member(group, identity)
            left[member.member_id] = member
        except ApiError as refused:
            error = refused.error
        answers.append(member_answer(identity, error))
    reason = f"explicit `LeaveGroup` request for ({', '.join(left)}) members."
    fence_members(ctx, store, group, list(left.values()), GroupEvent.MEMBER_LEFT, reason=reason)
    return answers


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    existing = group.static_member(identity.group_instance_id)
    # An admin removes a static member by its instance id alone.
    member_id = identity.member_id or (existing.member_id if existing is not None else "")
    return known_static(existing, member_id, identity.group_instance_id)


def _classic_member(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation_id: int
) -> ConsumerMember:
    if group_instance_id is None:
        member = group.member(member_id)
    else:
        member = known_static(group.static_member(group_instance_id), member_id, group_instance_id)
    if member.classic is None:
        raise ApiError(Errors.UNKNOWN_MEMBER_ID)
    if member.member_epoch != generation_id:
        raise ApiError(Errors.ILLEGAL_GENERATION)
    return member


def _restart_session(ctx: Context, group: ConsumerGroup, member: ConsumerMember, classic: ClassicMetadata) -> None:
    key = TimerKey(timers.SESSION, group.group_id, member.member_id)
    ctx.timers.arm(key, ctx.now_ms + classic.session_timeout_ms)


def _arm_join(ctx: Context, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Arms the timer within which the member has to join again, from the first time that it was asked to."""
    key = TimerKey(timers.JOIN, group.group_id, member.member_id)
    if not ctx.timers.is_armed(key):
        ctx.timers.arm(key, ctx.now_ms + member.rebalance_timeout_ms)
