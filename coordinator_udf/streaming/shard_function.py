"""The stateful function of the stream: decode the shard, hand it the rows, encode it again. No logic of its own."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from coordinator_udf.log.kafka.downtime import with_downtime
from coordinator_udf.log.rows import are_controls
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.batches import process_batch
from coordinator_udf.shard.state_row.codec import STATE_VERSION, decode, encode
from coordinator_udf.streaming.packing import PACKED_OUTPUTS, Tally, pack_outputs, unpack_requests
from coordinator_udf.streaming.shard_keys import partition_of
from coordinator_udf.streaming.sources.clock import LAST, bound_by_ticks
from coordinator_udf.streaming.stored_state import StoredState, from_stored, to_stored
from schemas.outputs import SHARD_STATE
from schemas.requests import LIVE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ShardFunction = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]


def shard_function(settings: Settings, *, gaps_are_downtime: bool = False) -> ShardFunction:
    """Returns the function for ``applyInPandasWithState``: one call serves all groups of a shard.

    Args:
        gaps_are_downtime: whether a gap in the log's time says that nobody could append (log.kafka.downtime). Each tick
            has to be remembered then.
    """

    def handle(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        if TaskContext.get() is not None:
            leave_garbage_to_spark()
        rows = bound_by_ticks(unpack_requests(value for frame in frames for value in frame["requests"]), settings)
        stored = state.get if state.exists else None
        if not gaps_are_downtime and stored is not None and is_quiet(rows, stored):
            return
        partition = partition_of(int(key[0]))
        shard = decode(partition, settings, None if stored is None else from_stored(partition, stored))
        if gaps_are_downtime:
            rows = with_downtime(rows, shard.ctx.now_ms)
        outputs = process_batch(shard, LIVE, rows.combine_chunks().to_batches()[0]).all()
        state.update(to_stored(partition, encode(shard)))
        controls = pc.sum(are_controls(rows.column("api"))).as_py() or 0
        tally = Tally(len(rows) - controls, len(shard.store.groups))
        yield pd.DataFrame(pack_outputs(partition, tally, outputs), columns=PACKED_OUTPUTS.fieldNames())

    return handle


def leave_garbage_to_spark() -> None:
    """Stops this process from searching for cyclic garbage by itself, and exempts what is loaded from any search.

    For Spark's worker processes, which search after every task anyhow (`gc.collect` in the loop of pyspark/daemon.py),
    through objects of which all but a few are modules. Whether it is done already says `gc.isenabled`.
    """
    if gc.isenabled():
        gc.disable()
        gc.freeze()


def is_quiet(rows: pa.Table, stored: StoredState) -> bool:
    """Returns whether nothing happens in a shard: only ticks of the embedded log came, and no timer is due by them.

    Such a tick needs not even be remembered, since no row of that log is earlier than the rows before it. (Rows beside
    the job's own clock can be.) A shard without a timer is one whose time has not begun, or that loads: the first tick
    begins it.
    """
    version, next_deadline_ms, *_ = stored
    if version != STATE_VERSION or next_deadline_ms is None or pc.max(rows.column("offset")).as_py() == LAST:
        return False
    if pc.any(pc.not_equal(pc.fill_null(rows.column("api"), ""), "Tick")).as_py():
        return False
    times = pc.min_max(rows.column("log_ts")).as_py()
    return bool(times["min"] >= 0 and times["max"] < next_deadline_ms)


def coordinate(requests: DataFrame, settings: Settings, *, gaps_are_downtime: bool = False) -> DataFrame:
    """Returns the stateful stage: packed requests in, what the shards say out (packing.PACKED_OUTPUTS).

    No timeout: time is in the rows, and a group's timers are in its shard.
    """
    return requests.groupBy("shard").applyInPandasWithState(
        shard_function(settings, gaps_are_downtime=gaps_are_downtime),
        PACKED_OUTPUTS,
        SHARD_STATE,
        "append",
        GroupStateTimeout.NoTimeout,
    )
