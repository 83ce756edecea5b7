"""Between which times what-if counts: those of the log, and none that are none of its."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from coordinator_udf.commands.job import as_app
from coordinator_udf.commands.what_if import main
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.plan import Hang, MemberPlan, TopicPlan, WorldPlan
from coordinator_udf.simulation.what_if.change import Change
from coordinator_udf.simulation.what_if.comparison import compare
from coordinator_udf.simulation.what_if.group_log import GroupLog, read_groups
from coordinator_udf.simulation.what_if.log_entries import read_entries
from coordinator_udf.simulation.what_if.report import as_json, report_lines
from coordinator_udf.simulation.what_if.span import Span, counted, span_of
from coordinator_udf.simulation.what_if.topics import wanted_from_ms
from coordinator_udf.user_errors import InputError
from tests.conftest import SAMPLE_LOG, shared

#: The sample goes from 02:43:33 to 02:44:26.
DAY = "2026-11-21"


@cache
def _entries() -> list[Entry]:
    return read_entries(SAMPLE_LOG)


@cache
def _group(group_id: str) -> GroupLog:
    return next(one for one in read_groups(_entries(), {}) if one.group_id == group_id)


def test_a_time_is_of_utc_or_of_the_zone_that_it_names() -> None:
    noon_ms = 1_795_229_040_000
    assert span_of(None, None, _entries()) == Span(None, None)
    for text in (f"{DAY}T02:44:00", f"{DAY}T04:44:00+02:00", str(noon_ms)):
        assert span_of(text, None, _entries()) == Span(noon_ms, None)
        assert span_of(None, text, _entries()) == Span(None, noon_ms)


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (
            "2026",
            None,
            "--from is 2026, expected milliseconds since the epoch, near the log's: it goes from 2026-11-21T02:",
        ),
        ("1795229040", None, "--from is 1795229040, expected milliseconds"),
        (None, "1795229040000000", "--to is 1795229040000000, expected milliseconds"),
        ("noon", None, "--from: 'noon' is no time"),
        ("2026-11-22", None, "expected a time before the log's end: it goes from"),
        (None, "2026-11-20", "expected a time after the log's start: it goes from"),
        (f"{DAY}T02:44:10", f"{DAY}T02:44:00", f"expected a time before --to, which is {DAY}T02:44:00"),
        (f"{DAY}T02:44:10", f"{DAY}T02:44:10", "expected a time before --to"),
    ],
)
def test_a_span_with_nothing_of_the_log_in_it_is_refused(start: str | None, end: str | None, said: str) -> None:
    with pytest.raises(InputError) as refused:
        span_of(start, end, _entries())
    assert said in str(refused.value)


def test_time_before_a_groups_world_is_not_counted() -> None:
    group = _group("crash-a")
    whole = compare(group, Change(), range(1), span_of(f"{DAY}T00:00:00", None, _entries()))
    assert whole.base == compare(group, Change(), range(1), (group.plan.start_ms, None)).base
    assert 0 < whole.base.unowned_s < 4 * 70


def test_a_span_in_which_nothing_is_done_to_any_group_is_refused() -> None:
    result = CliRunner().invoke(as_app(main), [str(SAMPLE_LOG), "--to", f"{DAY}T02:43:40"])
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "nothing would be counted between --from and --to: crash-" in line
    assert "give --from, too" in line


def test_a_group_with_nothing_in_the_span_says_so() -> None:
    group = _group("crash-a")
    outcome = compare(group, Change(), range(1), (None, group.plan.start_ms + 5_000))
    (line,) = [line for line in report_lines([outcome], {}) if "nothing is counted" in line]
    assert "nothing disturbed it before 2026-11-21T02:43:" in line
    assert as_json([outcome], {})["groups"]["crash-a"]["nothing_counted"] == line.partition(": ")[2]
    later = compare(group, Change(), range(1), (group.plan.start_ms - 2, group.plan.start_ms - 1))
    assert later.uncounted is not None
    assert later.uncounted.startswith("it was there only from 2026-11-21T02:43:")
    assert later.base.unowned_s == 0


@pytest.mark.parametrize(
    ("run", "rebalances"), [("W1-base", 10), ("W1-consumer", 10), ("W2-base", 3), ("W2-consumer", 4)]
)
def test_the_shutdown_at_the_end_of_a_log_is_not_counted(run: str, rebalances: int) -> None:
    """As many rebalances as the runs' own tables have from the first disturbance to the end of the workload."""
    (group,) = read_groups(read_entries(shared("evidence", "ab", "dev") / f"{run}.request.log.gz"), {})
    assert compare(group, Change(), range(1), (None, None)).base.rebalances == rebalances


def test_a_process_that_hangs_disturbs_a_group() -> None:
    """What others have of it counts, and so does what comes of a later crash."""
    first = MemberPlan("a", 1, "g", ("t",), 0, crash_at_ms=60_000)
    second = MemberPlan("b", 1, "g", ("t",), 0, hangs=(Hang(30_000, 15_000),))
    plan = WorldPlan((first, second), (TopicPlan("t", 2),), 120_000)
    assert counted(Span(None, None), plan, plan.start_ms) == (plan.start_ms + 30_000, plan.start_ms + 120_000)


def test_another_subscription_disturbs_a_group() -> None:
    entries = read_entries(shared("evidence", "dev", "subscriptions.request.log.gz"))
    group = next(one for one in read_groups(entries, {}) if one.group_id == "subscriptions-a")
    assert compare(group, Change(), range(1), (None, None)).base.unowned_s > 80


def test_partitions_have_the_owners_of_the_log_and_count_once_somebody_wants_them() -> None:
    entries = read_entries(shared("evidence", "dev", "kip848.request.log.gz"))
    settings = {"group.consumer.session.timeout.ms": 15_000, "group.consumer.min.session.timeout.ms": 10_000}
    group = next(one for one in read_groups(entries, settings) if one.group_id == "kip848-a")
    unowned_s = compare(group, Change(), range(1), (None, None)).base_details.unowned_s
    # The killed process had these two; those of t3 nobody wanted before it died.
    assert min(unowned_s["kip848-t-0"], unowned_s["kip848-t-1"]) > 15
    assert unowned_s["t1-0"] == unowned_s["t1-1"] == 0
    assert all(unowned_s[f"t3-{number}"] < 1 for number in range(4))


def test_a_topic_that_no_pattern_matches_is_wanted_from_when_it_is_named() -> None:
    first = SimpleNamespace(start_ms=1_000.0, topics=(), regex="a.*", resubscribed_ms=())
    second = SimpleNamespace(start_ms=2_000.0, topics=("a", "b"), regex=None, resubscribed_ms=((3_000.0, ("c",)),))
    assert [wanted_from_ms(name, cast("Any", (first, second))) for name in "abc"] == [1_000, 2_000, 3_000]
