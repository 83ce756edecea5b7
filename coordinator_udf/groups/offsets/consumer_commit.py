"""Who may commit offsets in a consumer group: a member with its epoch, or with an older one for what it had then.

Source: ConsumerGroup.validateOffsetCommit and createAssignmentEpochValidator (KIP-1251), OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.consumer import ConsumerGroup, ConsumerMember
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.requests import TxnOffsetCommit

#: (topic name, topic id, partition) -> nothing, or an ApiError that refuses the whole request.
PartitionCheck = Callable[[str, str, int], None]

#: From this version on a commit says that its generation may be a member epoch.
_MEMBER_EPOCH_VERSION = 9


def member_commit_check(group: ConsumerGroup, member_id: str, epoch: int, api_version: int) -> PartitionCheck | None:
    """Returns what each partition of an OffsetCommit has to pass; None is nothing.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH or ILLEGAL_GENERATION.
    """
    if epoch < 0 and group.is_empty():
        return None
    member = group.member(member_id)
    if member.classic is None and api_version < _MEMBER_EPOCH_VERSION:
        raise ApiError(Errors.UNSUPPORTED_VERSION)
    return _epoch_check(member, epoch, _stale(member))


def txn_commit_check(ctx: Context, group: ConsumerGroup, body: TxnOffsetCommit) -> PartitionCheck | None:
    """Returns what each partition of a TxnOffsetCommit has to pass; None is nothing.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION.
    """
    is_simple = body.generation_id == -1 and not body.member_id and body.group_instance_id is None
    if is_simple or (body.generation_id < 0 and group.is_empty()):
        return None
    check = _epoch_check(group.member(body.member_id), body.generation_id, Errors.ILLEGAL_GENERATION)
    if check is None:
        return None
    if any(topic.name not in ctx.topics for topic in body.topics):
        raise ApiError(Errors.ILLEGAL_GENERATION)
    return lambda name, _, partition: check(name, ctx.topics[name].id, partition)


def _stale(member: ConsumerMember) -> Errors:
    return Errors.STALE_MEMBER_EPOCH if member.classic is None else Errors.ILLEGAL_GENERATION


def _epoch_check(member: ConsumerMember, epoch: int, error: Errors) -> PartitionCheck | None:
    """Allows an older epoch for partitions that the member has had since then: the commit crossed a rebalance."""
    if epoch == member.member_epoch:
        return None
    if epoch > member.member_epoch:
        raise ApiError(error)

    def check(_: str, topic_id: str, partition: int) -> None:
        since = member.assigned.get(topic_id, {}).get(partition)
        if since is None:
            since = member.pending_revocation.get(topic_id, {}).get(partition)
        if since is None or epoch < since:
            raise ApiError(error)

    return check
