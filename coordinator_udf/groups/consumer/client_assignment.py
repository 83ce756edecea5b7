"""ConsumerGroupPrepareAssignment and ConsumerGroupInstallAssignment: a member computes its group's assignment.

Source: KIP-848 (client-side mode, which Kafka has left out).
"""

from __future__ import annotations

from typing import Any

from coordinator_udf.groups.consumer.change import Change
from coordinator_udf.groups.consumer.client_assignors import choose, supported
from coordinator_udf.groups.consumer.computation import assign_to_member, failed, has_successor, late
from coordinator_udf.groups.consumer.target import subscribed_names, subscribed_topic_ids
from coordinator_udf.groups.consumer.validate_assignment import NewTargets, validated
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.groups.model.client_assignment import NO_VALID_ASSIGNMENT, Computation, InstalledAssignment
from coordinator_udf.groups.model.consumer import ConsumerGroup, ConsumerMember
from coordinator_udf.groups.records.consumer import target_epoch, target_member
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.java_order.walks import Target, is_same_target
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.requests import (
    ConsumerGroupInstallAssignment,
    ConsumerGroupPrepareAssignment,
    Topic,
)


def check_request(body: ConsumerGroupPrepareAssignment | ConsumerGroupInstallAssignment) -> None:
    """Checks what can be checked without the group.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    complaint = None
    if not body.group_id:
        complaint = "GroupId can't be empty."
    elif not body.member_id:
        complaint = "MemberId can't be empty."
    elif body.member_epoch < 0:
        complaint = f"MemberEpoch is {body.member_epoch}, expected at least 0."
    if complaint is not None:
        raise ApiError(Errors.INVALID_REQUEST, complaint)


def _check_chosen(
    store: GroupStore, body: ConsumerGroupPrepareAssignment | ConsumerGroupInstallAssignment
) -> tuple[ConsumerGroup, Computation]:
    """Returns the group, and its computation, which is the member's to do.

    Raises:
        ApiError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
    """
    group = store.consumer(body.group_id)
    if group is None:
        what = "not found" if store.get(body.group_id) is None else "is not a consumer group"
        raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {body.group_id} {what}.")
    member = group.member(body.member_id)
    if member.member_epoch != body.member_epoch:
        message = f"The member epoch is {body.member_epoch}, that of the member is {member.member_epoch}."
        raise ApiError(Errors.STALE_MEMBER_EPOCH, message)
    computation = group.computation
    if computation is None or computation.member_id != member.member_id:
        message = f"Member {member.member_id} was not chosen to compute the assignment of group {group.group_id}."
        raise ApiError(Errors.UNKNOWN_MEMBER_ID, message)
    return group, computation


# -- what to compute from -----------------------------------------------------------------------------------------


def prepare_body(error: Errors = Errors.NONE, message: str | None = None, **found: Any) -> dict[str, Any]:
    """Returns the body of a ConsumerGroupPrepareAssignment answer."""
    return {
        "throttleTimeMs": 0,
        "errorCode": int(error),
        "errorMessage": message,
        "groupEpoch": 0,
        "assignorName": "",
        "assignorVersion": 0,
        "members": [],
        "topics": [],
        **found,
    }


def prepare_assignment(ctx: Context, store: GroupStore, body: ConsumerGroupPrepareAssignment) -> dict[str, Any]:
    """Returns the answer: the group's state, with all that an assignor needs.

    Raises:
        ApiError: it is refused.
    """
    group, computation = _check_chosen(store, body)
    topics: dict[str, Topic] = {}
    members = []
    for member in group.in_order():
        names = [name for name in subscribed_names(member, group.resolved_regexes) if name in ctx.topics]
        topics.update({name: ctx.topics[name] for name in names})
        ids = list(subscribed_topic_ids(ctx.topics, names))
        members.append(_prepared_member(group, member, computation.assignor, ids))
    return prepare_body(
        groupEpoch=group.group_epoch,
        assignorName=computation.assignor,
        assignorVersion=computation.version,
        members=members,
        topics=[_prepared_topic(topics[name]) for name in sorted(topics)],
    )


def _prepared_member(
    group: ConsumerGroup, member: ConsumerMember, assignor: str, topic_ids: list[str]
) -> dict[str, Any]:
    said = next((each for each in supported(member) if each.name == assignor), None)
    return {
        "memberId": member.member_id,
        "memberEpoch": member.member_epoch,
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "subscribedTopicIds": topic_ids,
        "reason": 0 if said is None else said.reason,
        "metadataVersion": -1 if said is None else said.metadata_version,
        "metadata": b"" if said is None else said.metadata,
        "partitions": _topic_partitions(group.target(member.member_id)),
    }


def _topic_partitions(target: Target) -> list[dict[str, Any]]:
    return [{"topicId": topic_id, "partitions": list(partitions)} for topic_id, partitions in target.items()]


def _prepared_topic(topic: Topic) -> dict[str, Any]:
    return {
        "topicId": topic.id,
        "topicName": topic.name,
        "numPartitions": topic.partitions,
        "racks": [{"racks": list(racks)} for racks in topic.racks],
    }


# -- what was computed --------------------------------------------------------------------------------------------


def install_body(error: Errors = Errors.NONE, message: str | None = None) -> dict[str, Any]:
    """Returns the body of a ConsumerGroupInstallAssignment answer."""
    return {"throttleTimeMs": 0, "errorCode": int(error), "errorMessage": message}


def install_assignment(ctx: Context, store: GroupStore, body: ConsumerGroupInstallAssignment) -> None:
    """Takes what a member computed as the group's target assignment, or its error.

    Raises:
        ApiError: it is refused.
    """
    try:
        group, _ = _check_chosen(store, body)
    except ApiError as refused:
        _note_refusal(ctx, store, body, refused)
        raise
    if body.error:
        _fail(ctx, store, body, error=body.error, because=None)
        return
    try:
        targets = validated(ctx.topics, group, body.group_epoch, body.members)
    except ApiError as refused:
        _fail(ctx, store, body, error=NO_VALID_ASSIGNMENT, because=refused.message)
        raise
    _install(ctx, store, group, body.group_epoch, targets)


def _note_refusal(ctx: Context, store: GroupStore, body: ConsumerGroupInstallAssignment, refused: ApiError) -> None:
    """Puts out a row for an assignment that came from a member that was not, or no longer, to compute it."""
    group = store.consumer(body.group_id)
    if group is not None and (member := group.members.get(body.member_id)) is not None:
        ctx.note_member(group, GroupEvent.ASSIGNMENT_REFUSED, member, f"{refused.error.name}: {refused.message}")


def _install(ctx: Context, store: GroupStore, group: ConsumerGroup, epoch: int, new: NewTargets) -> None:
    change = Change(ctx, store, group)
    group_id = group.group_id
    for member in group.in_order():
        target, metadata = new.targets.get(member.member_id, {}), new.metadata.get(member.member_id)
        same_metadata = metadata == group.target_metadata.get(member.member_id)
        if not same_metadata or not is_same_target(target, group.targets.get(member.member_id)):
            change.records.append(target_member(group_id, member.member_id, target, metadata))
    installed = _installed(group, ctx.now_ms)
    change.records.append(target_epoch(group_id, epoch, ctx.now_ms, installed))
    change.set_computation(None)
    reason = (
        f"assignment for epoch {epoch} computed by member {installed.member_id} with the assignor "
        f"{installed.assignor} in {installed.took_ms} ms"
    )
    change.write(GroupEvent.ASSIGNMENT_INSTALLED, reason, always=True)


def _installed(group: ConsumerGroup, now_ms: int, error: int = 0) -> InstalledAssignment:
    computation = group.computation
    if computation is None:
        raise ValueError(f"nobody computes the assignment of group {group.group_id}")
    took_ms = now_ms - computation.told_ms if computation.told_ms else 0
    return InstalledAssignment(computation.assignor, computation.member_id, took_ms, error, computation.refusals)


def _fail(
    ctx: Context, store: GroupStore, body: ConsumerGroupInstallAssignment, *, error: int, because: str | None
) -> None:
    """Notes that a member failed and asks another one; after the last the group keeps its partitions for this epoch.

    Args:
        because: why an assignment was refused; None: the member says that its assignor failed.
    """
    group, computation = _check_chosen(store, body)
    change = Change(ctx, store, group)
    choice = choose(list(group.members.values()))
    after = failed(computation, group.group_epoch, error, refused=because is not None)
    if choice is not None and has_successor(after, choice):
        change.set_computation(assign_to_member(after, choice, group.group_epoch))
    else:
        if choice is not None:
            installed = _installed(group, ctx.now_ms, error)
            epoch = _settled_epoch(group, body.group_epoch)
            change.records.append(target_epoch(group.group_id, epoch, ctx.now_ms, installed))
        change.set_computation(None)
    what = GroupEvent.ASSIGNMENT_FAILED if because is None else GroupEvent.ASSIGNMENT_REFUSED
    told = f"its assignor {computation.assignor} failed with error {error}" if because is None else because
    change.write(what, f"member {computation.member_id}: {told}", always=True)


def _settled_epoch(group: ConsumerGroup, claimed: int) -> int:
    """Returns the epoch for which the group needs no new assignment: the one that was computed for, if any."""
    return claimed if group.assignment_epoch < claimed <= group.group_epoch else group.group_epoch


# -- what didn't come ---------------------------------------------------------------------------------------------


def ask_another(ctx: Context, store: GroupStore, group: ConsumerGroup) -> None:
    """Chooses another member to compute when the one that was told to is later than its rebalance timeout.

    Raises:
        ApiError: UNKNOWN_SERVER_ERROR, where the record is too large for the log; nothing has changed then.
    """
    computation = group.computation
    if computation is None or computation.told_ms == 0:
        return
    change = Change(ctx, store, group)
    choice = choose(list(group.members.values()))
    change.set_computation(assign_to_member(late(computation), choice, group.group_epoch))
    waited_ms = ctx.now_ms - computation.told_ms
    reason = f"member {computation.member_id} has not installed an assignment within {waited_ms} ms"
    change.write(GroupEvent.ASSIGNMENT_LATE, reason, always=True)
