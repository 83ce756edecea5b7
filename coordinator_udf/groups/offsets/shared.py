"""What commits and deletions of offsets have in common: keys, answers, and a log that takes all or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.records.classic import OFFSET_COMMIT
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.offsets_topic.sizes import Sizes
from coordinator_udf.protocol.errors import ApiError, Errors

#: A record that is about to be applied: type, key and value; None is a tombstone.
Change = tuple[str, dict[str, Any], dict[str, Any] | None]


def write_or_refuse(ctx: Context, store: GroupStore, sizes: Sequence[Sizes], records: Iterable[Change]) -> None:
    """Refuses a request whose records are larger together than the log takes; it writes all of them or none.

    Args:
        sizes: how large each of its records is.
        records: those that replace or end something, if they are applied.

    Raises:
        ApiError: UNKNOWN_SERVER_ERROR.
    """
    if sizes and not store.make_room(ctx, sizes):
        store.put_back(ctx, records)
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR)


def offset_key(group_id: str, topic: str, partition: int) -> dict[str, Any]:
    """The key of an offset's record."""
    return {"type": OFFSET_COMMIT, "group": group_id, "topic": topic, "partition": partition}


def partition_answer(index: int, error: Errors) -> dict[str, Any]:
    """What an answer says of a partition."""
    return {"partitionIndex": index, "errorCode": int(error)}


def partition_exists(ctx: Context, topic: str, partition: int) -> bool:
    """Whether a topic has such a partition."""
    there = ctx.topics.get(topic)
    return there is not None and 0 <= partition < there.partitions
