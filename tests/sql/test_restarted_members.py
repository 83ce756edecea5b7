"""What the views tell of a static member that one process after the other was, each with a client id of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from tests.replay.broker_log import KafkaLog
from tests.sql.test_put_out import join_as_instance, sync

Ask = Callable[[str], list[dict[str, Any]]]


def restarts() -> KafkaLog:
    """Three processes with one instance id, one after the other; the last dies, and is put out."""
    log = KafkaLog()
    join_as_instance(log, "i-1", "i-1", arrives=0, takes=3_000, connection="a")
    sync(log, "i-1", instance="i", arrives=3_010, connection="a")
    for number, connection in ((2, "b"), (3, "c")):
        join_as_instance(log, f"i-{number}", f"i-{number - 1}", arrives=number * 3_000, connection=connection)
        log.heartbeat(f"i-{number}", arrives=number * 3_000 + 500, connection=connection)
    # By then c's session is over.
    log.heartbeat("i-3", 25, arrives=30_000, connection="c")
    return log


def name_requests_as_live(tables: Path) -> None:
    """Gives requests names as the live coordinator's, which tell no connection."""
    for name in ("request_log", "group_responses"):
        rows = DeltaTable(str(tables / name)).to_pyarrow_table()
        place = rows.schema.get_field_index("request_id")
        named = pc.replace_substring_regex(rows["request_id"], r"^.*-([0-9]+)/", r"491b2ff6d91f4748-\1")
        rows = rows.set_column(place, rows.schema.field(place), named)
        write_deltalake(str(tables / name), rows, mode="overwrite")


@pytest.fixture(params=["recorded", "live"])
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Ask:
    """Asks of a replayed log, or of the same as the live coordinator writes it."""
    log = restarts().write(tmp_path / "request.log")
    (report,) = replay(None, ReplayRequest((log,), tmp_path / "tables", ReplayOptions()), print)
    assert report.failure is None
    if request.param == "live":
        name_requests_as_live(tmp_path / "tables")
    views = ViewsInProcess(str(tmp_path / "tables"))
    views.make(views_named("incarnations expulsions"))
    return views.ask


def test_each_process_is_called_as_it_calls_itself(ask: Ask) -> None:
    lives = ask("SELECT client_id, current_client_id, name FROM incarnations ORDER BY since")
    assert [tuple(row.values()) for row in lives] == [("a", "a", "a"), ("a", "b", "b"), ("a", "c", "c")]
    assert not any(row["same_connection"] for row in ask("SELECT same_connection FROM incarnations"))
    (expelled,) = ask("SELECT client_id, current_client_id, name FROM expulsions")
    assert tuple(expelled.values()) == ("a", "c", "c")


def test_the_timeouts_that_a_static_member_asked_for_once_are_told(ask: Ask) -> None:
    (expelled,) = ask("SELECT member_id, session_timeout_ms, rebalance_timeout_ms, silence_ms FROM expulsions")
    assert tuple(expelled.values()) == ("i-3", 10_000, 60_000, 10_000)


def test_time_in_which_the_coordinator_was_away_is_no_silence_of_members(tmp_path: Path) -> None:
    log = restarts().write(tmp_path / "request.log")
    (report,) = replay(None, ReplayRequest((log,), tmp_path / "tables", ReplayOptions()), print)
    assert report.failure is None
    rows = DeltaTable(str(tmp_path / "tables" / "request_log")).to_pyarrow_table()
    last = rows.filter(pc.equal(rows["member_id"], "i-3")).to_pylist()[-2]
    away = []
    for from_ms, until_ms in ((1_000, 4_000), (6_000, 60_000)):
        body = {"fromMs": last["log_ts"] + from_ms, "untilMs": last["log_ts"] + until_ms, "graceMs": 0}
        away.append({**dict.fromkeys(rows.schema.names), "source": last["source"], "partition": last["partition"],
                     "offset": 10_000 + from_ms, "log_ts": last["log_ts"], "api": "Downtime",
                     "body": json.dumps(body)})  # fmt: skip
    # On another partition somebody else's coordinator was away.
    away.append({**away[0], "partition": last["partition"] + 1})
    write_deltalake(str(tmp_path / "tables" / "request_log"), pa.Table.from_pylist(away, rows.schema), mode="append")
    views = ViewsInProcess(str(tmp_path / "tables"))
    views.make(views_named("expulsions findings"))
    assert views.ask("SELECT silence_ms, coordinator_away_ms FROM expulsions") == [
        {"silence_ms": 10_000, "coordinator_away_ms": 7_000}
    ]
    (found,) = views.ask("SELECT text FROM findings WHERE finding = 'expelled'")
    assert "after up to 3.0 s of silence, not counting when the coordinator was away; " in found["text"]
