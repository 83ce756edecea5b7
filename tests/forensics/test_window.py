"""A report of a part of the time: it tells of that what the report of the whole does, and of nothing else."""

from __future__ import annotations

import gzip
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from coordinator_udf.commands.report import facts_of
from coordinator_udf.forensics.charts import group_data
from coordinator_udf.forensics.facts import GroupFacts, span_of
from coordinator_udf.forensics.sentences import at_the_end
from coordinator_udf.forensics.window import Window, parse_time
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from coordinator_udf.user_errors import InputError
from tests.conftest import SAMPLE_LOG

#: As many lines of the log end while both groups have members.
FIRST_LINES = 260
#: Before and after all that is told in it.
START, END = datetime(2026, 11, 21, 2), datetime(2026, 11, 21, 3)
OF_REBALANCES = {"silent member held up the group", "second expulsion in one rebalance"}
AXIS = {"from", "to", "at"}


def clock(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-21 {text}")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a log that ends while both groups have members."""
    folder = tmp_path_factory.mktemp("first")
    log = folder / "first.log"
    log.write_bytes(b"".join(gzip.decompress(SAMPLE_LOG.read_bytes()).splitlines(keepends=True)[:FIRST_LINES]))
    replay(None, ReplayRequest((log,), folder / "tables", ReplayOptions()), print)
    return folder / "tables"


def told(tables: Path, since: str | None = None, until: str | None = None) -> dict[str, GroupFacts]:
    window = Window(None, since and clock(since), until and clock(until))  # type: ignore[arg-type]
    return {facts.group_id: facts for facts in facts_of(str(tables), window)}


def test_who_came_before_and_is_there_still_is_told_of(first: Path) -> None:
    whole, part = told(first), told(first, since="02:43:55")
    for group, facts in whole.items():
        assert at_the_end(part[group]) == at_the_end(facts)
        owned = {(each.topic, each.partition, each.member_id) for each in facts.ownership if each.until is None}
        assert owned
        assert owned <= {(each.topic, each.partition, each.member_id) for each in part[group].ownership}
    # Begun before, and under way.
    assert [r.outcome for r in told(first, since="02:43:58.460")["crash-a"].rebalances] == ["UnderWay"]


def test_a_time_of_the_command_line_is_told_in_its_own_zone() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    two = datetime(2026, 11, 21, 2, 44)
    assert parse_time("2026-11-21 04:44:00+02:00", "--from", UTC) == two
    assert parse_time("2026-11-21T02:44Z", "--from", berlin) == two
    assert parse_time("2026-11-21 03:44", "--from", berlin) == two
    assert parse_time("2026-11-21", "--from", UTC) == datetime(2026, 11, 21)
    # Clocks go back: the window has both.
    twice = "2026-10-25 02:30"
    assert parse_time(twice, "--to", berlin, last=True) - parse_time(twice, "--from", berlin) == timedelta(hours=1)
    with pytest.raises(InputError, match="--from is 'noon'; expected a time such as '2026"):
        parse_time("noon", "--from", UTC)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a log at whose end both groups are empty."""
    folder = tmp_path_factory.mktemp("whole")
    replay(None, ReplayRequest((SAMPLE_LOG,), folder, ReplayOptions()), print)
    return folder


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("02:43:55", None),
        (None, "02:44:00"),
        ("02:43:55", "02:44:12"),
        ("02:44:00", "02:44:09.610"),
        ("02:44:23", None),
    ],
)
def test_what_is_told_of_a_part_of_the_time_agrees_with_itself(
    since: str | None, until: str | None, whole: Path
) -> None:
    groups = told(whole, since, until)
    begin, end = span_of(groups.values()) or (START, END)
    assert (begin, end) >= (clock(since) if since else START, START)
    assert end <= (clock(until) if until else END)
    for facts in groups.values():
        counts = {finding.finding: finding.times for finding in facts.findings}
        assert counts.get("expelled", 0) == len(facts.expulsions)
        assert all(times <= len(facts.rebalances) for finding, times in counts.items() if finding in OF_REBALANCES)
        assert facts.stopped_ms <= (end - begin) / timedelta(milliseconds=1)
        assert (facts.unserved_ms(end) or 0) <= (end - begin) / timedelta(milliseconds=1)
        said = at_the_end(facts) or ""
        assert ("Nobody" in said) == (not facts.stayed)
        assert facts.last_gone is None or (facts.last_gone.until or END) <= end
        rows = [row for of_one_kind in group_data(facts, end).values() for row in of_one_kind]
        moments = [datetime.fromisoformat(row[name]) for row in rows for name in row.keys() & AXIS]
        assert all(begin <= moment <= end for moment in moments)


def test_settings_of_those_who_are_still_there_are_told_of_though_they_joined_before(whole: Path) -> None:
    (found,) = (each for each in told(whole, "02:44:00")["crash-b"].findings if each.finding.startswith("mixed"))
    assert re.match(r"members have rebalance timeouts of 8000 ms \(.+\), 300000 ms \(", found.text)
    # Then one was gone, and all who stayed have the same.
    assert "mixed rebalance timeouts" not in {each.finding for each in told(whole, "02:44:22.840")["crash-b"].findings}


def test_the_rows_of_a_finding_of_a_part_of_the_time_are_of_that_time(whole: Path) -> None:
    (found,) = (each for each in told(whole, "02:44:00")["crash-a"].findings if each.finding == "expelled")
    views = ViewsInProcess(str(whole))
    views.make(views_named(found.evidence))
    assert len(views.ask(found.evidence)) == found.times == 2
