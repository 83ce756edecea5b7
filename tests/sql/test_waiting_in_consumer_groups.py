"""Whom the members of consumer groups (KIP-848) waited for, on what Kafka's own coordinator did and stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.commands.report import facts_of
from coordinator_udf.forensics.sentences import rebalance_sentence
from coordinator_udf.forensics.window import Window
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from tests.conftest import shared

Ask = Callable[[str], list[dict[str, Any]]]
TRACES = Path(__file__).parents[1] / "data" / "traces"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("waiting")
    traces = tuple(TRACES / f"consumer848-{number}.jsonl.gz" for number in ("0006", "0011", "0058"))
    assert {report.failure for report in replay(None, ReplayRequest(traces, out, ReplayOptions()), print)} == {None}
    return out


@pytest.fixture(scope="module")
def ask(folder: Path) -> Ask:
    views = ViewsInProcess(str(folder))
    views.make(views_named("rejoins waited_for findings rebalances"))
    return views.ask


def of_epoch(ask: Ask, view: str, source: str, number: int, group: str = "c2") -> list[dict[str, Any]]:
    return ask(f"SELECT * FROM {view} WHERE source LIKE '%{source}%' AND group_id = '{group}' AND number = {number}")


def test_who_gave_nothing_up_until_its_rebalance_timeout_held_up_who_waited(ask: Ask) -> None:
    (row,) = of_epoch(ask, "waited_for", "0011", 10)
    assert (row["holder_client_id"], row["holder_how"], row["holder_revoke_lag_ms"]) == ("c6", "expelled", 20_000)
    assert (row["held_up"], row["held_up_ms"]) == (["m-c13-615474"], 21_317)
    rows = {each["client_id"]: each for each in of_epoch(ask, "rejoins", "0011", 10)}
    assert (rows["c6"]["how"], rows["c6"]["rule"], rows["c6"]["reached_lag_ms"]) == (
        "expelled", "REBALANCE_EXPIRED", None,
    )  # fmt: skip
    assert rows["c13"]["assign_lag_ms"] >= row["held_up_ms"]
    assert rows["c13"]["held_up"] is None


def test_what_a_member_was_doing_fits_into_its_epoch(ask: Ask) -> None:
    rows = ask("SELECT r.*, b.duration_ms FROM rejoins r JOIN rebalances b USING (source, group_id, number)")
    assert len(rows) > 100
    for row in rows:
        assert (row["kind"], row["join_lag_ms"], row["sync_lag_ms"], row["retries"]) == ("consumer", None, None, None)
        lags = [row[name] for name in ("told_lag_ms", "revoke_lag_ms", "assign_lag_ms", "reached_lag_ms", "held_up_ms")]
        assert all(lag is None or 0 <= lag <= (row["duration_ms"] or lag) for lag in lags)
        if row["how"] == "reconciled":
            assert row["told_lag_ms"] <= row["reached_lag_ms"]
        assert (row["settled_ts"] is None) == (row["how"] in {"overtaken", "unfinished"})


def test_who_reached_an_epoch_reached_it_before_it_ended_and_is_named_by_its_own_client_id(ask: Ask) -> None:
    rows = ask("SELECT * FROM waited_for WHERE how <> 'not told'")
    assert all(row["at"] is None or row["until"] is None or row["at"] <= row["until"] for row in rows)
    named = {(row["source"], row["group_id"], row["member_id"]): row["client_id"] for row in ask(
        "SELECT DISTINCT source, group_id, member_id, client_id FROM rejoins")}  # fmt: skip
    assert all(row["client_id"] == named[row["source"], row["group_id"], row["member_id"]] for row in rows)
    assert {row["rule"] for row in rows if row["how"] in {"overtaken", "unfinished"}} <= {None}


def test_findings_name_who_held_others_up_and_assignors_that_differ(ask: Ask) -> None:
    found = {(row["source"][12:16], row["group_id"], row["finding"]): row for row in ask("SELECT * FROM findings")}
    slow = found["0006", "c0", "slow member held up the group"]
    assert (slow["cost_ms"], slow["setting"]) == (3_540, "max.poll.interval.ms")
    assert slow["text"] == "others waited for partitions that were slowly given up by c0, for up to 3.5 s"
    dead = found["0006", "c0", "silent member held up the group"]
    assert dead["text"].startswith("others waited for partitions of c11, until a timer put it out; ")
    for told in (slow, dead):
        views = ask(told["evidence"].replace(" AND within(until, until)", ""))
        assert len(views) == told["times"]
    mixed = found["0011", "c0", "mixed assignors"]
    assert mixed["text"] == (
        "members name assignors oracle-sorted (c0, c11, c2 and 3 more), range (c4, c8), "
        "and the one that most name is taken"
    )
    asked = ask(mixed["evidence"])
    assert {row["api"] for row in asked} == {"ConsumerGroupHeartbeat"}


def test_the_page_says_who_had_partitions_that_others_waited_for(folder: Path) -> None:
    (facts,) = (each for each in facts_of(str(folder), Window(("c2",))) if "0011" in each.source)
    told = [rebalance_sentence(r, facts) for r in facts.rebalances if r.holder_member_id == "m-c6-534355"]
    assert any("others waited 21.3 s for partitions that c6 still had" in text for text in told)


def test_members_were_told_and_gave_up_when_a_brokers_log_says_so(tmp_path: Path) -> None:
    logs = tuple(shared("evidence", "ab", "dev", f"W3-consumer.{kind}.log.gz") for kind in ("request", "server"))
    told = {f"group.consumer.{name}heartbeat.interval.ms": "1000" for name in ("", "min.")}
    replay(None, ReplayRequest(logs, tmp_path, ReplayOptions(overrides=told)), print)
    views = ViewsInProcess(str(tmp_path))
    views.make(views_named("rejoins"))
    rows = views.ask("SELECT * FROM rejoins WHERE generation = 7 ORDER BY client_id")
    names = ("client_id", "told_lag_ms", "revoke_lag_ms", "assign_lag_ms", "held_up_ms")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("c1", 647, 328, None, 975),
        ("c2", 0, None, 2193, None),
        ("c3", 998, 250, None, 1248),
        ("c4", 714, 235, None, 949),
    ]
