"""The state object of Spark that the function for a shard is given."""

from __future__ import annotations

from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import Row

from coordinator_udf.streaming.stored_state import StoredState
from schemas.outputs import SHARD_STATE


def group_state(stored: StoredState | None = None) -> GroupState:
    """A state with a shard's row in it, or an empty one."""
    return GroupState(
        optionalValue=Row(*stored or ()),
        batchProcessingTimeMs=0,
        eventTimeWatermarkMs=-1,
        timeoutConf=GroupStateTimeout.NoTimeout,
        hasTimedOut=False,
        watermarkPresent=False,
        defined=stored is not None,
        updated=False,
        removed=False,
        timeoutTimestamp=-1,
        keyAsUnsafe=b"",
        valueSchema=SHARD_STATE,
    )
