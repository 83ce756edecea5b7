"""A log cut in two: both parts are the whole, and the later part alone contradicts nothing of it."""

from __future__ import annotations

import gzip
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.replay.judge.report import SourceReport
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.sql.in_process import ViewsInProcess
from schemas.views import INCIDENT_VIEWS
from tests.conftest import shared
from tests.nightly import some_or_many
from tests.sql.incident_views import VIEWS_IN_PROCESS

pytestmark = pytest.mark.slow

Rows = dict[str, list[dict[str, Any]]]
SESSIONS = {"group.consumer.session.timeout.ms": "15000", "group.consumer.min.session.timeout.ms": "10000"}
#: What the broker of that recording was told.
LIMITS = {
    "group.max.size": "3", "group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0",
    "offset.metadata.max.bytes": "64", "group.consumer.max.size": "2",
}  # fmt: skip
#: The moment at which a request was handled is reckoned from the lines around it, which a cut takes away.
APART = timedelta(milliseconds=50)
#: What is compared of each view, and the column with its moment.
COMPARED = {
    "rebalances": ("started", ("generation", "trigger", "trigger_client_id", "outcome", "members_after")),
    "expulsions": ("at", ("member_id", "rule", "timer", "came_back_as")),
    "member_events": ("at", ("event", "member_id", "client_id")),
    "waited_for": ("started", ("generation", "how", "client_id")),
    "assignment_history": ("since", ("topic", "partition", "member_id")),
}
SCENARIOS = some_or_many(
    ("storm", "kip848"),
    ("storm", "crash", "static-restart", "max-poll", "scale-1-5", "rolling-strategy", "kip848", "migrate"),
)
#: Where groups of the classic protocol go on for long enough after a cut for their members to be listed again.
RIGHT_AGAIN = {"storm", "scale-1-5", "max-poll", "rolling-strategy"}
#: Cuts that take away what the later part would have to know: under which name an instance's first process ran, which
#: moments a shard was busy, whose ids had been given and not yet used, with which timeouts a member had come.
BLIND_CUTS: tuple[tuple[str, dict[str, str], tuple[int, ...]], ...] = (
    ("evidence/dev/static-restart.request.log.gz", SESSIONS, (99,)),
    ("evidence/ab/dev/W1-delay0.request.log.gz", SESSIONS, (93,)),
    ("broker/logs-dev/fuzz-classic.log.gz", SESSIONS, (16, 526)),
    ("broker/logs-dev/limits.log.gz", LIMITS, (2413,)),
)
#: Of a broker's own log: of both protocols; in the night also of a restart, of a migration, and one whose first half
#: has no line of the coordinator.
INFO_SCENARIOS = some_or_many(("dev/kip848",), ("dev/kip848", "dev/broker-restart", "dev/migrate", "ab/dev/W1-static"))
#: What a broker's own log says where it doesn't tell: columns' comments name these values.
NOT_TOLD = {None, "NotTold", "not told", "EPOCH_BUMPED"}


def tables(paths: Sequence[Path], out: Path, settings: dict[str, str] = SESSIONS) -> tuple[list[SourceReport], Rows]:
    request = ReplayRequest(tuple(paths), out, ReplayOptions(overrides=settings), overwrite=True)
    reports = replay(None, request, print)
    assert [report.failure for report in reports if report.failure is not None] == []
    views = ViewsInProcess(str(out))
    views.make(VIEWS_IN_PROCESS)
    rows = {name: views.ask(f"SELECT * FROM {name}") for name in VIEWS_IN_PROCESS}
    views.close()
    return reports, rows


def cut(log: Path, folder: Path, place: int | float) -> tuple[Path, Path, Path]:
    """The first part, the later part (under a name that stands before that of the first), and the whole.

    Args:
        place: of the first line of the later part, or which share of all lines is before it.
    """
    lines = gzip.decompress(log.read_bytes()).splitlines(keepends=True)
    place = int(len(lines) * place) if isinstance(place, float) else place
    folder.mkdir()
    first, later, whole = folder / "b.log", folder / "a.log", folder / "whole.log"
    for path, part in ((first, lines[:place]), (later, lines[place:]), (whole, lines)):
        path.write_bytes(b"".join(part))
    return first, later, whole


def plain(row: dict[str, Any]) -> str:
    # The statement that shows a finding's rows names the source, too.
    return repr({name: value for name, value in row.items() if name not in {"source", "evidence"}})


def contradictions(later: Rows, whole: Rows) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of the later part that no row of the whole bears out, from where each group is reliable on."""
    reliable = {row["group_id"]: row["reliable_from"] for row in later["reliability"]}
    for view, (moment, columns) in COMPARED.items():
        known: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in whole[view]:
            known[row["group_id"]].append(row)
        for row in later[view]:
            since = reliable.get(row["group_id"])
            if since is None or row[moment] < since:
                continue
            same = [each for each in known[row["group_id"]] if bears_out(each, row, columns)]
            # The first owner that the later part tells of may have had the partition for longer.
            is_first = row.get("change") == "first"
            if not any(each[moment] <= row[moment] + APART and (is_first or each[moment] >= row[moment] - APART)
                       for each in same):  # fmt: skip
                yield view, row


def bears_out(whole: dict[str, Any], later: dict[str, Any], columns: Sequence[str]) -> bool:
    """Whether all that the later part tells is so in the whole, too."""
    for name in columns:
        told, known = later[name], whole[name]
        if isinstance(told, list):
            if known is None or sorted(known) != sorted(told):
                return False
        elif told not in NOT_TOLD and told != known:
            return False
    return True


def told_by_the_later_part(log: Path, seed: str, directory: Path) -> Rows:
    """What the later part tells alone, which the whole bears out; both parts tell what the whole does.

    Args:
        seed: of where the log is cut.
    """
    first, later, whole = cut(log, directory / "in", random.Random(seed).uniform(0.2, 0.7))
    _, all_of_it = tables([whole], directory / "whole")
    parts, both = tables([later, first], directory / "both")
    assert len(parts) == 1
    for name in VIEWS_IN_PROCESS:
        assert sorted(map(plain, both[name])) == sorted(map(plain, all_of_it[name])), name
    _, alone = tables([later], directory / "later")
    assert list(contradictions(alone, all_of_it)) == []
    return alone


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_cut_log_tells_what_the_whole_tells(scenario: str, tmp_path: Path) -> None:
    alone = told_by_the_later_part(shared("evidence", "dev", f"{scenario}.request.log.gz"), scenario, tmp_path)
    reliable = {row["group_id"]: row["reliable_from"] for row in alone["reliability"]}
    for name in INCIDENT_VIEWS.keys() - {"gaps"}:
        told = {(row["group_id"], row["reliable_from"]) for row in alone[name] if row["group_id"] in reliable}
        assert told <= reliable.items(), name
    begun = {row["group_id"] for row in alone["gaps"] if row["gap"] == "begins in the middle"}
    assert begun
    if scenario in RIGHT_AGAIN:
        assert any(reliable[group] is not None for group in begun)
        assert any(row["started"] >= reliable[row["group_id"]] for row in alone["rebalances"])


@pytest.mark.parametrize(("log", "settings", "lines"), BLIND_CUTS)
def test_what_a_cut_took_away_is_not_told_otherwise(
    log: str, settings: dict[str, str], lines: Sequence[int], tmp_path: Path
) -> None:
    recording = shared(*log.split("/"))
    _, all_of_it = tables([cut(recording, tmp_path / "in", 0)[2]], tmp_path / "whole", settings)
    for line in lines:
        _, later, _ = cut(recording, tmp_path / f"in{line}", line)
        _, alone = tables([later], tmp_path / f"later{line}", settings)
        assert any(row["reliable_from"] is not None for row in alone["reliability"])
        assert "compacted" not in {row["gap"] for row in alone["gaps"]}
        assert list(contradictions(alone, all_of_it)) == []


@pytest.mark.parametrize("scenario", INFO_SCENARIOS)
def test_a_brokers_own_log_cut_in_two_tells_what_the_whole_tells(scenario: str, tmp_path: Path) -> None:
    alone = told_by_the_later_part(shared("evidence", f"{scenario}.server.log.gz"), scenario, tmp_path)
    assert alone["rebalances"]


def test_who_asked_for_an_assignment_before_a_group_is_put_right_is_not_put_out_for_not_asking(tmp_path: Path) -> None:
    _, later, _ = cut(shared("broker", "logs-dev", "limits.log.gz"), tmp_path / "in", 2413)
    _, alone = tables([later], tmp_path / "later", LIMITS)
    group = [row for row in alone["expulsions"] if row["group_id"] == "limits2-g0" and row["generation"] == 8]
    assert {row["rule"] for row in group if row["at"] >= row["reliable_from"]} == {"SESSION_EXPIRED"}
