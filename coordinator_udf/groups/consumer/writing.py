"""How the records of one operation on a consumer group are written: all or none, and what they change is told."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent
from coordinator_udf.groups.model.consumer import ConsumerGroupState
from coordinator_udf.groups.records.consumer import NewRecord
from coordinator_udf.groups.records.restored_order import restore_order
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.protocol.errors import ApiError, Errors

#: Why an operation fails whose records the log doesn't take.
TOO_LARGE = "the records are too large for the log"


def check_fits(ctx: Context, store: GroupStore, records: Sequence[NewRecord]) -> None:
    """Checks that the log takes records, which one operation writes all or none of and which are applied next.

    Raises:
        ApiError: UNKNOWN_SERVER_ERROR.
    """
    if not store.make_room(ctx, [record.sizes for record in records]):
        store.put_back(ctx, records)
        group = store.consumer(records[0].key.get("groupId", ""))
        if group is not None:
            restore_order(group, records)
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR, TOO_LARGE)


def write_records(ctx: Context, store: GroupStore, records: Sequence[NewRecord]) -> None:
    """Appends records and changes the groups as they say."""
    for type_, key, value in records:
        offset = ctx.append(type_, key, None if value is None else 0, value)
        store.apply(ctx, offset, type_, key, value)


def note_change(
    ctx: Context,
    store: GroupStore,
    group_id: str,
    previous: ConsumerGroupState | ClassicGroupState | None,
    event: GroupEvent,
    *,
    epoch: int | None,
    reason: str | None = None,
) -> bool:
    """Puts out a transition row if the group's state, or its epoch, isn't what it was; whether it did."""
    group = store.get(group_id)
    if group is None or (group.state is previous and group.generation_id == epoch):
        return False
    ctx.note(group, previous, event, reason)
    return True
