"""ConsumerGroupHeartbeat: joining, staying in and leaving a consumer group.

Source: GroupCoordinatorService (throwIfConsumerGroupHeartbeatRequestIsInvalid) and GroupMetadataManager
(consumerGroupHeartbeat, consumerGroupLeave).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import astuple, replace

from coordinator_udf.groups.consumer.change import Change
from coordinator_udf.groups.consumer.client_assignors import asks_anew, check_client_assignors, check_versions
from coordinator_udf.groups.consumer.convert import check_upgrade, convert_to_consumer, end_empty_classic
from coordinator_udf.groups.consumer.membership import (
    check_epoch,
    check_room,
    fence_members,
    join_dynamic,
    join_static,
    known_static,
    leave_for_a_while,
    note_come,
)
from coordinator_udf.groups.consumer.reconcile import Owned
from coordinator_udf.groups.consumer.regex import RegexChange
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.member_ids import new_consumer_member_id
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.groups.model.client_assignment import ClientAssignor
from coordinator_udf.groups.model.consumer import LEFT, LEFT_FOR_A_WHILE, ConsumerGroup, ConsumerMember
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.java_order.walks import assigned_in_kafka_order
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import ConsumerGroupHeartbeat

#: From this version on members make their own ids (KIP-1082).
_OWN_MEMBER_ID_VERSION = 1


def heartbeat_body(
    error: Errors = Errors.NONE,
    message: str | None = None,
    *,
    member_id: str | None = None,
    member_epoch: int = 0,
    heartbeat_interval_ms: int = 0,
    assignment: dict[str, Any] | None = None,
    should_compute_assignment: bool = False,
) -> dict[str, Any]:
    """Returns the body of a ConsumerGroupHeartbeat answer.

    What Kafka hasn't got of it is there only with something to say.
    """
    body: dict[str, Any] = {
        "throttleTimeMs": 0,
        "errorCode": int(error),
        "errorMessage": message,
        "memberId": member_id,
        "memberEpoch": member_epoch,
        "heartbeatIntervalMs": heartbeat_interval_ms,
        "assignment": assignment,
    }
    if should_compute_assignment:
        body["shouldComputeAssignment"] = True
    return body


def check_request(ctx: Context, api_version: int, body: ConsumerGroupHeartbeat) -> None:
    """Checks what can be checked without the group.

    Raises:
        ApiError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    epoch = body.member_epoch
    needs_id = api_version >= _OWN_MEMBER_ID_VERSION or epoch > 0 or epoch == LEFT
    for name, value in (
        ("MemberId", body.member_id if needs_id else None),
        ("GroupId", body.group_id),
        ("InstanceId", body.instance_id),
        ("RackId", body.rack_id),
    ):
        if value is not None and not value.strip():
            raise ApiError(Errors.INVALID_REQUEST, f"{name} can't be empty.")
    complaint = None
    if epoch == 0:
        complaint = _join_complaint(body)
    elif epoch == LEFT_FOR_A_WHILE and body.instance_id is None:
        complaint = "InstanceId can't be null."
    elif epoch < LEFT_FOR_A_WHILE:
        complaint = "MemberEpoch is invalid."
    if complaint is not None:
        raise ApiError(Errors.INVALID_REQUEST, complaint)
    check_client_assignors(_client_assignors(ctx, api_version, body) or ())
    if body.server_assignor is not None and body.server_assignor not in ctx.assignors:
        message = (
            f"ServerAssignor {body.server_assignor} is not supported. Supported assignors: {', '.join(ctx.assignors)}."
        )
        raise ApiError(Errors.UNSUPPORTED_ASSIGNOR, message)


def _join_complaint(body: ConsumerGroupHeartbeat) -> str | None:
    if body.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if body.topic_partitions is None or body.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if body.subscribed_topic_names is None and body.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def _client_assignors(
    ctx: Context, api_version: int, body: ConsumerGroupHeartbeat
) -> tuple[ClientAssignor, ...] | None:
    """Returns the assignors that a member says it can run; None if it says nothing of them, or nobody listens."""
    if not ctx.settings.group_consumer_client_assignors_enable or api_version < _OWN_MEMBER_ID_VERSION:
        return None
    told = body.client_assignors
    return None if told is None else tuple(ClientAssignor(*astuple(each)) for each in told)


class ConsumerHeartbeat:
    """One ConsumerGroupHeartbeat on its way through a group."""

    def __init__(self, ctx: Context, store: GroupStore, row: Request, body: ConsumerGroupHeartbeat) -> None:
        """Takes a request that passed `check_request`."""
        self.ctx = ctx
        self.store = store
        self.row = row
        self.body = body
        self.member_id = body.member_id or new_consumer_member_id(row)
        self.client_assignors = _client_assignors(ctx, row.api_version, body)
        self.owned: Owned = (
            None if body.topic_partitions is None else {tp.topic_id: tp.partitions for tp in body.topic_partitions}
        )

    def handle(self) -> None:
        """Answers the request.

        Raises:
            ApiError: it is refused.
        """
        if self.body.member_epoch in (LEFT, LEFT_FOR_A_WHILE):
            self._leave()
            return
        change = self._group()
        try:
            self._beat(change)
        finally:
            # What was found out about regular expressions before the request failed is found out nevertheless.
            change.resolve_regexes()

    # -- the group ------------------------------------------------------------------------------------------------

    def _group(self) -> Change:
        """Returns the group, or one that will be there once the request is through."""
        ctx, store, group_id = self.ctx, self.store, self.body.group_id
        group = store.get(group_id)
        joins = self.body.member_epoch == 0
        if group is None:
            if not joins:
                raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            return Change(ctx, store, ConsumerGroup(group_id))
        if isinstance(group, ConsumerGroup):
            return Change(ctx, store, group)
        if not joins:
            raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return self._converted(group)

    def _converted(self, group: ClassicGroup) -> Change:
        ctx, store = self.ctx, self.store
        if group.is_empty():
            change = Change(ctx, store, ConsumerGroup(group.group_id))
            change.records += end_empty_classic(group)
            return change
        check_upgrade(ctx, group)
        converted, records, armings = convert_to_consumer(ctx, group)
        change = Change(ctx, store, converted)
        change.records += records
        change.after += armings
        return change

    # -- a member that comes or stays -----------------------------------------------------------------------------

    def _beat(self, change: Change) -> None:
        body, group = self.body, change.group
        check_room(self.ctx, group, body.member_id)
        replaced = group.static_member(body.instance_id)
        member = self._member(change)
        updated = self._wishes(member)
        wants_anew = self._check_assignors(group, member, updated)
        names_changed = change.update_member(member, updated)
        regex = change.update_regex(member, updated)
        bump = names_changed or wants_anew or regex is RegexChange.RESOLVED
        epoch = change.update_epoch(member, updated, bump=bump)
        changed = names_changed or regex is not RegexChange.NONE
        updated = change.note_epochs(member, updated, epoch, joined=_is_new(group, member), subscribed=changed)
        asking = updated.member_id if updated.client_assignors and self._knows_extension else ""
        target_epoch, target = change.update_target(member, updated, epoch, asking=asking)
        updated = change.reconcile(updated, target_epoch, target, subscription_changed=changed, owned=self.owned)
        change.after.append(self._restart_session)
        joined = member.member_id not in group.members
        event = GroupEvent.RECONCILED
        if joined:
            event = GroupEvent.MEMBER_ADDED
        elif changed or wants_anew:
            event = GroupEvent.MEMBER_UPDATED
        elif epoch != group.group_epoch:
            event = GroupEvent.TOPICS_CHANGED
        try:
            change.write(event)
        except ApiError:
            if not joined and self.store.get(self.body.group_id) is group:
                # What is armed stays armed when nothing is written: whoever asks is there. In a group that was to be
                # converted nobody looks at it.
                self._restart_session()
            raise
        note_come(change, replaced, updated, known=not joined)
        self._answer(member, updated)

    def _member(self, change: Change) -> ConsumerMember:
        body = self.body
        joins = body.member_epoch == 0
        if body.instance_id is None:
            member = join_dynamic(change.group, self.member_id, create=joins)
            check_epoch(member, body.member_epoch, self.owned)
            return member
        member = join_static(change, self.member_id, body.instance_id, create=joins, classic=False)
        if not joins:
            check_epoch(member, body.member_epoch, self.owned)
        return member

    @property
    def _knows_extension(self) -> bool:
        """Whether the answer may have fields that Kafka's hasn't."""
        enabled = self.ctx.settings.group_consumer_client_assignors_enable
        return enabled and self.row.api_version >= _OWN_MEMBER_ID_VERSION

    def _check_assignors(self, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Returns whether the member's assignors are others, so that a new assignment is wanted.

        Raises:
            ApiError: UNSUPPORTED_ASSIGNOR.
        """
        if updated.client_assignors == member.client_assignors:
            return False
        others = [known for known in group.members_with(member, updated) if known is not updated]
        check_versions(others, updated)
        return asks_anew(member, updated)

    def _wishes(self, member: ConsumerMember) -> ConsumerMember:
        """Returns the member with what the request says; null leaves things as they are."""
        body = self.body
        # Who joins again says everything anew, and whose version can't be told of it can't compute.
        is_told = body.member_epoch != 0 and self.row.api_version >= _OWN_MEMBER_ID_VERSION
        kept_assignors = member.client_assignors if is_told else ()
        names, regex = body.subscribed_topic_names, body.subscribed_topic_regex
        return replace(
            member,
            instance_id=member.instance_id if body.instance_id is None else body.instance_id,
            rack_id=member.rack_id if body.rack_id is None else body.rack_id,
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms if body.rebalance_timeout_ms == -1 else body.rebalance_timeout_ms
            ),
            server_assignor=member.server_assignor if body.server_assignor is None else body.server_assignor,
            subscribed_topic_names=member.subscribed_topic_names if names is None else tuple(sorted(set(names))),
            subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
            client_id=self.row.client_id or "",
            client_host=self.row.client_host or "",
            classic=None,
            client_assignors=kept_assignors if self.client_assignors is None else self.client_assignors,
        )

    def _restart_session(self) -> None:
        ctx, group_id = self.ctx, self.body.group_id
        timeout_ms = ctx.group_setting(group_id, "consumer_session_timeout_ms")
        ctx.timers.arm(TimerKey(timers.SESSION, group_id, self.member_id), ctx.now_ms + timeout_ms)

    def _answer(self, member: ConsumerMember, updated: ConsumerMember) -> None:
        body = self.body
        named = body.subscribed_topic_names is not None or body.subscribed_topic_regex is not None
        is_full = body.rebalance_timeout_ms != -1 and named and body.topic_partitions is not None
        told = body.member_epoch == 0 or is_full or member.assigned != updated.assigned
        interval_ms = self.ctx.group_setting(body.group_id, "consumer_heartbeat_interval_ms")
        group = self.store.consumer(body.group_id)
        more: dict[str, Any] = {}
        should_compute = False
        if group is not None and updated.client_assignors and self._knows_extension:
            more = _assignors_answer(group, updated)
            # An error is told as long as it stands, metadata whenever the member comes to a new assignment.
            told |= "error" in more or ("metadataVersion" in more and member.member_epoch != updated.member_epoch)
            now = group.computation
            should_compute = now is not None and now.member_id == updated.member_id and now.told_ms != 0
        assignment = {**_assignment(updated), **more} if told else None
        self._reply(
            heartbeat_body(
                member_id=updated.member_id,
                member_epoch=updated.member_epoch,
                heartbeat_interval_ms=interval_ms,
                assignment=assignment,
                should_compute_assignment=should_compute,
            )
        )

    # -- a member that goes ---------------------------------------------------------------------------------------

    def _leave(self) -> None:
        ctx, store, body = self.ctx, self.store, self.body
        group = store.get(body.group_id)
        if group is None:
            raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {body.group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {body.group_id} is not a consumer group.")
        if body.instance_id is None:
            member = group.member(body.member_id)
        else:
            member = known_static(group.static_member(body.instance_id), body.member_id, body.instance_id)
        if body.instance_id is not None and body.member_epoch == LEFT_FOR_A_WHILE:
            leave_for_a_while(ctx, store, group, member)
        else:
            fence_members(ctx, store, group, [member], GroupEvent.MEMBER_LEFT)
        self._reply(heartbeat_body(member_id=body.member_id, member_epoch=body.member_epoch))

    def _reply(self, answer: dict[str, Any]) -> None:
        row = self.row
        self.ctx.answer(
            row.request_id, row.api, row.api_version, answer, group_id=row.group_id, member_id=answer["memberId"]
        )


def _is_new(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Returns whether a member isn't in the group, nor another one with its instance id."""
    return member.member_id not in group.members and member.instance_id not in group.static_members


def _assignors_answer(group: ConsumerGroup, member: ConsumerMember) -> dict[str, Any]:
    """Returns what the assignor that computed tells a member: an error, and metadata of its assignment."""
    said: dict[str, Any] = {}
    if group.assignment_error:
        said["error"] = group.assignment_error
    metadata = group.target_metadata.get(member.member_id)
    if metadata is not None and member.member_epoch == group.assignment_epoch:
        said["metadataVersion"] = metadata[0]
        if metadata[1]:
            said["metadata"] = metadata[1]
    return said


def _assignment(member: ConsumerMember) -> dict[str, Any]:
    """Returns what a member has, as its answer says it."""
    return {
        "topicPartitions": [
            {"topicId": topic_id, "partitions": list(partitions)}
            for topic_id, partitions in assigned_in_kafka_order(member.assigned).items()
        ]
    }
