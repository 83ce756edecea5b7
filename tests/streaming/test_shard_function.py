from __future__ import annotations

from typing import Any

import pyarrow as pa

from coordinator_udf.shard_codec import STATE_VERSION, StateRow
from coordinator_udf.streaming.clock_source import LAST
from coordinator_udf.streaming.shard_function import is_quiet
from schemas.requests import REQUEST_COLUMNS, request_log_arrow

TICK: dict[str, Any] = dict.fromkeys(REQUEST_COLUMNS) | {"source": "live", "partition": 0, "api": "Tick"}


def rows(*given: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([TICK | row for row in given], request_log_arrow())


def test_only_ticks_before_the_next_deadline_are_passed_over() -> None:
    def state(deadline: int | None, version: int = STATE_VERSION) -> StateRow:
        return version, deadline, b"", b""

    ticks = rows({"offset": 1, "log_ts": 10}, {"offset": 2, "log_ts": 20})
    assert is_quiet(ticks, state(21))
    assert is_quiet(ticks, state(None))
    assert not is_quiet(ticks, state(20)), "a timer with a deadline at the tick fires with it"
    assert not is_quiet(ticks, state(None, STATE_VERSION + 1)), "a state that can't be read is refused at once"
    assert not is_quiet(rows({"offset": 1, "log_ts": 10, "api": "Heartbeat"}, {"offset": 2, "log_ts": 11}), state(99))
    assert not is_quiet(rows({"offset": 1, "log_ts": 10, "api": None}), state(99))
    assert not is_quiet(rows({"offset": LAST, "log_ts": 10}), state(99)), "the job's clock may be ahead of requests"
