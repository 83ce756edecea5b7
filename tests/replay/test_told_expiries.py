"""What a broker's own log tells of the session timeout of consumer groups, with the request log beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from coordinator_udf.commands.report import facts_of, main
from coordinator_udf.forensics.report import ReportFormat
from coordinator_udf.forensics.window import Window
from coordinator_udf.replay.explain.told_expiries import Taken, with_told_session
from coordinator_udf.replay.inputs.detect import Format
from coordinator_udf.replay.inputs.info_log.reader import read_info_log
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, replay
from coordinator_udf.replay.tasks.long_log import run_long_log
from coordinator_udf.replay.tasks.portions import run_portion
from coordinator_udf.replay.tasks.recorded import Job
from tests.conftest import shared
from tests.replay.broker_log import START_MS, KafkaLog, read

SESSION, LEAST = "group.consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms"
EXPIRES = "[GroupId g] Member {member} fenced from the group because the member session expired."
LOADED = (
    "Finished loading of metadata from __consumer_offsets-3 with epoch 1 in 3ms where 1ms was spent in the scheduler."
)


def info(*told: tuple[int, str]) -> list[dict[str, Any]]:
    """Lines of a broker's own log, each with its time since the request log's start."""
    texts = []
    for ms, text in told:
        at = datetime.fromtimestamp((START_MS + ms) / 1000, UTC)
        stamp = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}"
        texts.append(f"[{stamp}] INFO [GroupCoordinator id=1 topic=__consumer_offsets partition=3] {text} (x.Y)")
    return read_info_log(texts).lines


def beats(log: KafkaLog, member: str, *times: int, epoch: int = 2) -> None:
    for at in times:
        answer = {"errorCode": 0, "memberId": member, "memberEpoch": epoch, "heartbeatIntervalMs": 5000}
        request = {"groupId": "g", "memberId": member, "memberEpoch": epoch}
        log.add("CONSUMER_GROUP_HEARTBEAT", request, {"throttleTimeMs": 0, **answer}, arrives=at, version=1)


def taken(folder: Path, log: KafkaLog, lines: list[dict[str, Any]], *given: str) -> Taken | None:
    facts = read(log, folder).facts
    assert facts is not None
    return with_told_session(ReplayOptions.load(None, given), lines, facts.entries.values())


@pytest.fixture
def log() -> KafkaLog:
    """Who dies is heard last at 5 s; another is heard until 40 s."""
    log = KafkaLog()
    beats(log, "dies", 0, 5_000)
    beats(log, "lives", *range(1_000, 41_000, 3_000))
    return log


def test_who_was_put_out_tells_the_session_timeout(log: KafkaLog, tmp_path: Path) -> None:
    found = taken(tmp_path, log, info((17_050, EXPIRES.format(member="dies"))))
    assert found is not None
    assert found.options.overrides == {SESSION: "12000", LEAST: "12000"}
    assert "put out 1 member after 11799 to 12051 ms of silence" in found.line


def test_what_is_given_stays(log: KafkaLog, tmp_path: Path) -> None:
    assert taken(tmp_path, log, info((17_050, EXPIRES.format(member="dies"))), f"{SESSION}=50000") is None


@pytest.mark.parametrize(
    "lines",
    [
        # It has the session timeout that it would have anyway.
        [(50_010, EXPIRES.format(member="dies"))],
        # When the request log was over, it may have been heard again.
        [(57_000, EXPIRES.format(member="dies"))],
        # Its session began anew.
        [(9_000, LOADED), (17_050, EXPIRES.format(member="dies"))],
        # A member of another protocol.
        [(17_050, EXPIRES.format(member="classic"))],
        # They contradict each other: requests are missing.
        [(17_050, EXPIRES.format(member="dies")), (24_000, EXPIRES.format(member="dies"))],
        # Others lived on after a longer silence.
        [(7_050, EXPIRES.format(member="dies"))],
    ],
    ids=["fits", "later", "loaded", "other protocol", "contradicting", "others lived on"],
)
def test_nothing_is_taken_where_it_is_not_certain(lines: list[tuple[int, str]], log: KafkaLog, tmp_path: Path) -> None:
    if lines[0][0] == 50_010:
        beats(log, "lives", 52_000)
    assert taken(tmp_path, log, info(*lines)) is None


def test_a_page_of_both_logs_needs_no_setting(tmp_path: Path) -> None:
    logs = tuple(shared("evidence", "dev", f"kip848.{kind}.log.gz") for kind in ("request", "server"))
    (report,) = replay(None, ReplayRequest(logs, tmp_path, ReplayOptions()), print)
    assert (report.different, report.proposals) == ({}, [])
    assert [line.partition(" taken")[0] for line in report.taken] == [f"--set {SESSION}=15000 --set {LEAST}=15000"]
    groups = facts_of(str(tmp_path), Window())
    assert sum(len(facts.expulsions) for facts in groups) == 3
    assert "duplicate instance id" not in {found.finding for facts in groups for found in facts.findings}
    assert {refused.error for facts in groups for refused in facts.refused} == {"UNRELEASED_INSTANCE_ID"}
    assert [facts.stayed for facts in groups] == [[], []]


@pytest.mark.parametrize("form", [ReportFormat.MARKDOWN, ReportFormat.HTML])
def test_a_page_begins_with_the_settings_that_do_not_fit(form: ReportFormat, tmp_path: Path) -> None:
    log, page = shared("evidence", "dev", "kip848.request.log.gz"), tmp_path / "page"
    main(inputs=[str(log)], output=str(page), form=form)
    text = page.read_text()
    said = text.index(f"Try --set {SESSION}=15000 --set {LEAST}=15000")
    assert text.index("WARNING: kip848.request.log.gz: 10 of 356 answers") < said < text.index("partition unserved")
    main(inputs=[str(log)], output=str(page), form=form, settings=[f"{SESSION}=15000", f"{LEAST}=15000"])
    assert "WARNING" not in page.read_text()


def test_shards_that_are_shared_among_tasks_have_it_too(tmp_path: Path) -> None:
    paths = [shared("evidence", "dev", f"kip848.{kind}.log.gz") for kind in ("request", "server")]
    job = Job(paths[0], "log", Format.KAFKA, (paths[0],), (paths[1],), ReplayOptions(), tmp_path, tmp_path / "scratch")
    job.scratch.mkdir()
    done = run_long_log(
        job, lambda portions, _: [run_portion(each) for each in portions], print, mapped=map, task_lines=100
    )
    assert done.report.failure is None
    assert len(done.report.taken) == 1
    assert done.report.different == {}
