"""A report of a part of the time: it tells of that what the report of the whole does, and of nothing else."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from coordinator_udf.commands.report import facts_of
from coordinator_udf.forensics.facts import GroupFacts
from coordinator_udf.forensics.sentences import at_the_end
from coordinator_udf.forensics.window import Window, parse_time
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.user_errors import InputError
from tests.conftest import SAMPLE_LOG

#: As many lines of the log end while both groups have members.
FIRST_LINES = 260


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
