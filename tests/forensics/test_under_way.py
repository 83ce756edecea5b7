"""A log that ends while a group stands still: since when, and for whom all wait."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from coordinator_udf.commands.report import facts_of
from coordinator_udf.forensics.facts import GroupFacts
from coordinator_udf.forensics.sentences import rebalance_sentence
from coordinator_udf.forensics.window import Window
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from tests.replay.broker_log import START_MS, KafkaLog
from tests.replay.test_cut_logs import two_of_whom_one_is_silent

#: When the third one joins, and the last heartbeat that the log has (ms).
BEGUN_MS, ENDS_MS = 8_001, 39_100


def tables(log: KafkaLog, tmp_path: Path) -> str:
    log.write(tmp_path / "broker.log")
    replay(None, ReplayRequest((tmp_path / "broker.log",), tmp_path / "tables", ReplayOptions(partitions=4)), print)
    return str(tmp_path / "tables")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return tables(two_of_whom_one_is_silent(until_ms=40_000, beats=True), tmp_path)


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(milliseconds=START_MS + ms)


@pytest.mark.parametrize("groups", [None, ("g",)])
def test_a_group_that_stands_still_does_so_up_to_the_end_of_the_log(
    folder: str, groups: tuple[str, ...] | None
) -> None:
    (facts,) = facts_of(folder, Window(groups))
    assert facts.evidence_until == at(ENDS_MS)
    last = facts.rebalances[-1]
    assert (last.outcome, last.duration_ms, facts.lasted_ms(last)) == ("UnderWay", None, ENDS_MS - BEGUN_MS)
    first_ms = facts.rebalances[0].duration_ms or 0
    assert first_ms > 5_000
    assert facts.stopped_ms == first_ms + ENDS_MS - BEGUN_MS


def test_of_a_window_only_its_part_of_that_counts(folder: str) -> None:
    (facts,) = facts_of(folder, Window(None, at(10_000), at(20_000)))
    assert facts.stopped_ms == 10_000


def test_the_report_says_for_whom_all_wait(folder: str) -> None:
    (facts,) = facts_of(folder, Window())
    told = rebalance_sentence(facts.rebalances[-1], facts)
    assert told == (
        "d joined; all wait for b, which hasn't joined again; it was still under way at the end of the evidence"
    )


def test_sql_says_for_whom_all_wait(folder: str) -> None:
    views = ViewsInProcess(folder)
    views.make(views_named("waited_for rejoins"))
    (waited,) = views.ask("SELECT how, member_id, not_joined, lag_ms FROM waited_for WHERE outcome = 'UnderWay'")
    assert waited == {"how": "not joined", "member_id": "m-2", "not_joined": ["m-2"], "lag_ms": None}
    rows = views.ask("SELECT member_id, how, last_request FROM rejoins WHERE number = 2 ORDER BY member_id")
    assert [(row["member_id"], row["how"]) for row in rows] == [
        ("m-1", "joined"), ("m-2", "not joined"), ("m-3", "joined"),
    ]  # fmt: skip


def not_joined(heard_ms: dict[str, int], tmp_path: Path) -> GroupFacts:
    """A group of two that is to join again for a third one, with the last heartbeats of the two."""
    log = two_of_whom_one_is_silent(until_ms=9_000, beats=False)
    for member_id, last_ms in heard_ms.items():
        for beat_ms in range(9_000, last_ms + 1, 1_000):
            log.heartbeat(member_id, 27, arrives=beat_ms, connection={"m-1": "a", "m-2": "b"}[member_id])
    log.lines.sort()
    (facts,) = facts_of(tables(log, tmp_path), Window())
    return facts


def test_of_several_all_count_that_were_heard_lately(tmp_path: Path) -> None:
    facts = not_joined({"m-1": 16_000, "m-2": 15_000}, tmp_path)
    last = facts.rebalances[-1]
    assert sorted(last.not_joined) == ["m-1", "m-2"]
    assert "all wait for a and 1 more, which haven't joined again" in rebalance_sentence(last, facts)


def test_who_is_silent_while_the_other_is_heard_may_wait(tmp_path: Path) -> None:
    """Its session isn't over, so that nothing says that its join is there."""
    facts = not_joined({"m-1": 10_000, "m-2": 17_000}, tmp_path)
    assert facts.rebalances[-1].not_joined == ("m-2",)
