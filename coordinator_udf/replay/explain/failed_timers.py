"""Timers of a group that came to nothing, for their broker hung until it no longer led the shard.

A broker that hangs is missed by the controller. When it goes on, its timers of meanwhile are due at once, and may come
before it unloads its shards, but after it heard that they aren't its own. What they write fails then; they are tried
again half a second later, when the shard is unloaded. So a member of the consumer protocol whose session is over stays
in its group, and has a new session where that is loaded.

Source: CoordinatorRuntime.EventBasedCoordinatorTimer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator_udf.log.rows import control_rows
from coordinator_udf.replay.explain.steps import Row
from coordinator_udf.replay.explain.supposed_rows import DELAY, with_supposed
from coordinator_udf.replay.inputs.broker_log.moments import TOLD_US, Silence

_US = 1_000
#: When what could not be written is tried again.
_RETRY_MS = 500


def hangs_before_losses(rows: Sequence[Row], hangs: Sequence[Silence]) -> Iterator[Silence]:
    """Yields the hangs of a broker in which it lost the shard, or right afterwards.

    Args:
        rows: the shard's, in order.
        hangs: when the broker hung, in order.
    """
    lost_ms = [row["log_ts"] for row in rows if row["api"] == "Unload"]
    for hang in hangs:
        first_ms = next((at_ms for at_ms in lost_ms if at_ms >= hang.start_us // _US), None)
        if first_ms is not None and first_ms * _US <= hang.end_us + TOLD_US:
            yield hang


def with_failed_timers(rows: Sequence[Row], partition: int, group_id: str, hang: Silence) -> Sequence[Row]:
    """Returns a shard's rows with what is due of a group while its broker hangs put off until it is tried again.

    Args:
        rows: the shard's, in order.
        partition: the shard.
        group_id: the group.
        hang: when the broker hangs.
    """
    body = {"groupId": group_id, "untilMs": hang.end_us // _US + _RETRY_MS}
    (delay,) = control_rows(partitions=1, log_ts=hang.start_us // _US, api=DELAY, body=body)
    return with_supposed(rows, [{**rows[0], **delay, "partition": partition}])
