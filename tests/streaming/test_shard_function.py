from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from coordinator_udf.log.rows import request_rows
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.shard import Shard
from coordinator_udf.shard.state_row.codec import STATE_VERSION, StateVersionError, encode
from coordinator_udf.streaming.packing import pack_requests, unpack_outputs
from coordinator_udf.streaming.shard_function import is_quiet, shard_function
from coordinator_udf.streaming.sources.clock import LAST, ClockReader
from coordinator_udf.streaming.stored_state import StoredState, to_stored
from schemas.requests import REQUEST_COLUMNS, request_log_arrow
from tests.streaming.states import group_state

TICK: dict[str, Any] = dict.fromkeys(REQUEST_COLUMNS) | {"source": "live", "partition": 0, "api": "Tick"}


def rows(*given: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([TICK | row for row in given], request_log_arrow())


def test_only_ticks_before_the_next_deadline_are_passed_over() -> None:
    def state(deadline: int | None, version: int = STATE_VERSION) -> StoredState:
        return version, deadline, "", ""

    ticks = rows({"offset": 1, "log_ts": 10}, {"offset": 2, "log_ts": 20})
    assert is_quiet(ticks, state(21))
    assert not is_quiet(ticks, state(20)), "a timer with a deadline at the tick fires with it"
    assert not is_quiet(ticks, state(None)), "the first tick begins a shard's time, and with it the looks for expiry"
    assert not is_quiet(ticks, state(99, STATE_VERSION + 1)), "a state that can't be read is refused at once"
    assert not is_quiet(rows({"offset": 1, "log_ts": -1}), state(99)), "a time that is none is rejected"
    assert not is_quiet(rows({"offset": 1, "log_ts": 10, "api": "Heartbeat"}, {"offset": 2, "log_ts": 11}), state(99))
    assert not is_quiet(rows({"offset": 1, "log_ts": 10, "api": None}), state(99))
    assert not is_quiet(rows({"offset": LAST, "log_ts": 10}), state(99)), "the job's clock may be ahead of requests"


@pytest.mark.parametrize("version", [STATE_VERSION - 1, STATE_VERSION + 1])
@pytest.mark.parametrize("api", ["Tick", "Heartbeat"])
def test_a_state_of_another_version_is_refused_and_what_to_do_is_said(version: int, api: str) -> None:
    state = group_state(to_stored(0, (version, *encode(Shard(0, Settings()))[1:])))
    (packed,) = pack_requests(rows({"offset": 1, "log_ts": 10, "api": api}).to_batches())
    frame = pd.DataFrame({"requests": packed.column("requests").to_pylist()})
    said = f"shard state of version {version}, this code reads version {STATE_VERSION}.*--recover-from-offsets"
    with pytest.raises(StateVersionError, match=said):
        list(shard_function(Settings())((0,), iter([frame]), state))


def test_a_tick_of_the_job_comes_after_every_request_of_its_micro_batch() -> None:
    """The heartbeat is a millisecond before the member's deadline, the tick after it; Spark hands the tick first."""
    settings = Settings.from_kafka({"group.initial.rebalance.delay.ms": 0})
    join = {"groupId": "g", "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 20_000, "memberId": ""}
    join |= {"protocolType": "x", "protocols": [{"name": "p", "metadata": ""}]}
    beat = {"groupId": "g", "generationId": 1, "memberId": "m"}
    asked: dict[str, Any] = {"partitions": 1, "client_id": "c", "client_host": "/h", "proposed_member_id": "m"}
    (joined,) = request_rows(**asked, log_ts=1_000, request_id="r0", api="JoinGroup", api_version=3, body=join)
    (beaten,) = request_rows(**asked, log_ts=10_999, request_id="r1", api="Heartbeat", api_version=3, body=beat)
    clock = ClockReader(partitions=1, lag_ms=0, topics="")
    handle, state = shard_function(settings), group_state()
    errors: list[tuple[str, int]] = []
    for row, tick_ms in ((joined, 1_000), (beaten, 15_000)):
        ticks = clock.readBetweenOffsets({"ms": 0, "topics": ""}, {"ms": tick_ms, "topics": ""})
        (requests,) = pack_requests(rows({**row, "offset": 7}).to_batches())
        packed = [*(value for _, value in ticks), *requests.column("requests").to_pylist()]
        for frame in handle((0,), iter([pd.DataFrame({"requests": packed})]), state):
            said = unpack_outputs(pa.Table.from_pandas(frame))[1].responses.to_pylist()
            errors += [(output["api"], output["error_code"]) for output in said]
    assert errors == [("JoinGroup", 0), ("Heartbeat", 0)]
