"""Each finding names the rows that it is told from, and a setting to look at."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from pathlib import Path

import pytest

from coordinator_udf.commands.report import facts_of
from coordinator_udf.forensics.report import ReportFormat, render
from coordinator_udf.forensics.window import Window
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from tests.conftest import SAMPLE_LOG, SHARED, shared


def logs() -> list[Path]:
    folder = SHARED / "evidence" / "dev"
    return [path for name in ("storm", "max-poll", "static-restart", "rolling-strategy", "subscriptions")
            if (path := folder / f"{name}.request.log.gz").exists()]  # fmt: skip


@pytest.mark.parametrize("log", [SAMPLE_LOG, *logs()], ids=lambda path: path.name.partition(".")[0])
def test_each_finding_has_rows_and_a_setting(log: Path, tmp_path: Path) -> None:
    replay(None, ReplayRequest((log,), tmp_path / "tables", ReplayOptions()), print)
    views = ViewsInProcess(str(tmp_path / "tables"))
    views.make(views_named("findings"))
    findings = views.ask("SELECT * FROM findings")
    assert findings
    for finding in findings:
        assert finding["setting"]
        views.make(views_named(finding["evidence"]))
        rows = views.ask(finding["evidence"])
        assert rows, finding
        assert {row["group_id"] for row in rows} == {finding["group_id"]}


def test_a_member_that_was_slow_to_join_again_is_named(tmp_path: Path) -> None:
    log = shared("evidence", "dev", "subscriptions.request.log.gz")
    replay(None, ReplayRequest((log,), tmp_path / "tables", ReplayOptions()), print)
    views = ViewsInProcess(str(tmp_path / "tables"))
    views.make(views_named("findings"))
    (found,) = views.ask("SELECT * FROM findings WHERE finding LIKE 'slow member%'")
    assert (found["group_id"], found["cost_ms"]) == ("subscriptions-a", 25769)
    assert found["text"] == "all others had joined again and waited for kafkapython-1, for up to 25.8 s"


def test_who_was_removed_by_an_administrator_is_called_as_it_calls_itself(tmp_path: Path) -> None:
    log = shared("evidence", "dev", "static-restart.request.log.gz")
    replay(None, ReplayRequest((log,), tmp_path / "tables", ReplayOptions()), print)
    views = ViewsInProcess(str(tmp_path / "tables"))
    views.make(views_named("findings assignment_history"))
    (found,) = views.ask("SELECT * FROM findings WHERE finding = 'removed by an admin'")
    assert found["text"] == "an administrator removed duplicate-2, restarted-1"
    kept = views.ask("SELECT DISTINCT topic, partition FROM assignment_history WHERE change = 'kept'")
    assert len(kept) == 4


def test_the_facts_of_one_group_are_those_that_it_has_among_others(tmp_path: Path) -> None:
    replay(None, ReplayRequest((SAMPLE_LOG,), tmp_path, ReplayOptions()), print)
    for of_all in facts_of(str(tmp_path), Window()):
        (alone,) = facts_of(str(tmp_path), Window((of_all.group_id,)))
        assert alone == of_all


def test_a_group_id_with_quotes_is_asked_about_as_it_is(tmp_path: Path) -> None:
    group = """a"b'c\\d|e"""
    text = gzip.decompress(SAMPLE_LOG.read_bytes()).decode()
    log = tmp_path / "quotes.log"
    log.write_text(text.replace('"crash-b"', json.dumps(group)))
    replay(None, ReplayRequest((log,), tmp_path / "tables", ReplayOptions()), print)
    views = ViewsInProcess(str(tmp_path / "tables"))
    views.make(views_named("findings"))
    evidence = [row["evidence"] for row in views.ask("SELECT * FROM findings") if row["group_id"] == group]
    assert evidence
    for statement in evidence:
        views.make(views_named(statement))
        assert {row["group_id"] for row in views.ask(statement)} == {group}
    of_part = facts_of(str(tmp_path / "tables"), Window((group,), datetime(2026, 11, 21, 2, 44)))
    assert [facts.group_id for facts in of_part] == [group]
    (row,) = (line for line in render(of_part, ReportFormat.MARKDOWN).splitlines() if line.startswith("| a"))
    assert row.replace("\\|", "").count("|") == row.count(" | ") + 2 == 8
