"""Where time stood still in a topic: a gap in a partition's timestamps.

Whoever can append ticks each second at the latest, in each partition; so when a partition's time jumps by more, nobody
could append to it. The log needs no row for that: what says so is put in on reading, between the same two records
whoever reads, and however the partition is cut into micro-batches.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from coordinator_udf.log.embedded import DOWNTIME_AFTER_MS
from coordinator_udf.log.rows import control_rows, downtime_rows
from schemas.requests import request_log_arrow

_SCHEMA: Final = request_log_arrow()
_BEGAN: Final = {"appenderBegan": True}
_BEGAN_JSON: Final = msgspec.json.encode(_BEGAN).decode()


def began_rows(partitions: int, now_ms: int) -> list[dict[str, Any]]:
    """Returns the ticks with which each appender begins. Before them its clients couldn't reach it."""
    return control_rows(partitions=partitions, log_ts=now_ms, api="Tick", body=_BEGAN)


def with_downtime(rows: pa.Table, now_ms: int) -> pa.Table:
    """Returns rows of one partition, in order, with a Downtime row in each gap of their time.

    Clients stayed connected all the while, unless the first row after the gap says that its appender just began.

    Args:
        now_ms: the partition's time before the first row; 0 before its very first.
    """
    log_ts = np.asarray(rows.column("log_ts"))
    before = np.maximum.accumulate(np.concatenate(([now_ms], log_ts)))[:-1]
    gaps = np.flatnonzero((before > 0) & (log_ts - before > DOWNTIME_AFTER_MS)).tolist()
    if not gaps:
        return rows
    pieces, at = [], 0
    for gap in gaps:
        first = rows.slice(gap, 1).to_pylist()[0]
        has_begun = first["api"] == "Tick" and first["body"] == _BEGAN_JSON
        (said,) = downtime_rows(1, int(before[gap]), int(log_ts[gap]), stayed_connected=not has_begun)
        place = {name: first[name] for name in ("source", "partition", "offset")}
        pieces += [rows.slice(at, gap - at), pa.Table.from_pylist([said | place], _SCHEMA)]
        at = gap
    return pa.concat_tables([*pieces, rows.slice(at)])
