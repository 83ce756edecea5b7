"""The log's clock: it stands still while a gateway that was there has gone, and no other is."""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing.synchronize import Event
from pathlib import Path

import msgspec
import pyarrow as pa

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.gateway_lock import hold_gateway_lock, is_gateway_there
from coordinator_udf.streaming.ticker import IDLE_INTERVAL_MS, Ticker
from tests.waiting import wait

INTERVAL_MS = 10


def attend(log: Path, attends: Event) -> None:
    with hold_gateway_lock(log):
        attends.set()
        signal.pause()


def test_time_stands_still_from_the_kill_of_the_last_gateway_to_the_start_of_the_next(tmp_path: Path) -> None:
    log = EmbeddedLog.create(tmp_path / "log.db", 2)
    log.downtime_after_ms = 300
    ticker = Ticker(log, INTERVAL_MS)
    fork = multiprocessing.get_context("fork")
    started = [fork.Event() for _ in range(2)]
    gateways = [fork.Process(target=attend, args=(log.path, event), daemon=True) for event in started]
    # Before there ever was a gateway requests come in another way.
    assert is_gateway_there(log.path)
    for gateway, event in zip(gateways, started, strict=True):
        gateway.start()
        assert event.wait(120)
    ticker.start()

    def goes_on() -> None:
        end = log.end()
        wait(lambda: log.end() > end + 2, "time passes")

    goes_on()
    gateways[0].kill()
    gateways[0].join()
    goes_on()
    gateways[1].kill()
    gateways[1].join()
    assert not is_gateway_there(log.path)
    wait(lambda: ticker._stands_still, "the clock sees it")
    stopped_at, stopped_ms = log.end(), log.newest_log_ts() or 0
    wait(lambda: log.now_ms() - stopped_ms > 500, "the gap is long enough")
    assert log.end() == stopped_at
    with hold_gateway_lock(log.path):
        goes_on()
    ticker.stop()
    rows = pa.Table.from_batches(log.read(stopped_at, log.end())).to_pylist()
    said = [msgspec.json.decode(row["body"]) for row in rows if row["api"] == "Downtime"]
    # There may be others, of a machine that had no time for the ticker.
    gaps = [gap for gap in said if gap["fromMs"] == stopped_ms]
    assert len(gaps) == 2
    # Its clients were refused, so that they come back after pauses of their own.
    assert all(gap["graceMs"] >= 300 and "heardWithinMs" not in gap for gap in gaps)
    log.close()


def test_a_log_to_which_nobody_else_appends_gets_fewer_ticks(tmp_path: Path) -> None:
    log = EmbeddedLog.create(tmp_path / "log.db", 2)
    ticker = Ticker(log, INTERVAL_MS)
    ticker.idle_after_ms = 0
    assert [ticker._wait_s() for _ in range(2)] == [IDLE_INTERVAL_MS / 1_000] * 2
    ticker.idle_after_ms = 1_000_000
    ticker.tick()
    assert ticker._wait_s() == INTERVAL_MS / 1_000
    alone_since_s = ticker._alone_since_s
    ticker.tick()
    assert ticker._alone_since_s == alone_since_s
    Ticker(log, INTERVAL_MS).tick()
    ticker.tick()
    assert ticker._alone_since_s > alone_since_s
    # One that ticks more rarely by itself goes on so.
    rare = Ticker(log, 2 * IDLE_INTERVAL_MS)
    rare.idle_after_ms = 0
    assert rare._wait_s() == 2 * IDLE_INTERVAL_MS / 1_000
    log.close()
