"""Offsets whose retention is over (KIP-211), and groups that go with their last one.

Source: OffsetMetadataManager.cleanupExpiredOffsets, GroupCoordinatorShard.cleanupGroupMetadata.
"""

from __future__ import annotations

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.groups.model.offsets import CommittedOffset
from coordinator_udf.groups.offsets.delete import delete_offset, end_group
from coordinator_udf.groups.store import Group, GroupStore


def expire_offsets(ctx: Context, store: GroupStore) -> None:
    """Deletes the offsets whose retention is over (KIP-211), and empty groups that have none left."""
    for group_id in list(store.groups):
        group = store.groups[group_id]
        if _expire_group_offsets(ctx, store, group) and group.is_empty():
            end_group(ctx, store, group_id, GroupEvent.OFFSETS_EXPIRED)


def _expire_group_offsets(ctx: Context, store: GroupStore, group: Group) -> bool:
    """Deletes a group's expired offsets; whether none is left and no transaction is open."""
    topics = store.offsets.committed.get(group.group_id)
    pending = store.offsets.pending_partitions(group.group_id)
    if topics is None:
        return not pending
    if not group.may_expire_offsets():
        return False
    none_left = True
    for topic, partitions in list(topics.items()):
        if group.is_subscribed_to(topic):
            none_left = False
            continue
        for partition, value in list(partitions.items()):
            if _is_expired(ctx, group, value) and (topic, partition) not in pending:
                delete_offset(ctx, store, group.group_id, topic, partition)
            else:
                none_left = False
    return none_left and not pending


def _is_expired(ctx: Context, group: Group, value: CommittedOffset) -> bool:
    return ctx.now_ms >= _expires_at_ms(ctx, group, value)


def _expires_at_ms(ctx: Context, group: Group, value: CommittedOffset) -> int:
    if value.expire_timestamp is not None:
        return value.expire_timestamp
    return group.offset_age_since(value.commit_timestamp) + ctx.settings.offsets_retention_ms


def next_expiry_ms(ctx: Context, store: GroupStore) -> int | None:
    """Returns when an offset's retention will be over, for looks at them in between do nothing.

    Returns None if there is none such.

    One whose retention is over already is held by something that only a request or another timer can change.
    """
    times = (
        _expires_at_ms(ctx, group, value)
        for group_id, topics in store.offsets.committed.items()
        # As in Kafka, a consumer group may be gone whose offsets nobody deleted.
        if (group := store.groups.get(group_id)) is not None
        for partitions in topics.values()
        for value in partitions.values()
    )
    return min((time for time in times if time > ctx.now_ms), default=None)
