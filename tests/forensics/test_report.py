"""The report: a page that draws and fetches nothing, Markdown, and a trace."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from coordinator_udf.forensics import report
from coordinator_udf.forensics.charts import group_data
from coordinator_udf.forensics.facts import (
    Expulsion,
    Finding,
    Gap,
    GroupFacts,
    Life,
    Ownership,
    Rebalance,
    Refusals,
)
from coordinator_udf.forensics.report import ReportFormat, render
from coordinator_udf.forensics.sentences import TRIGGERS, at_the_end, rebalance_sentence
from coordinator_udf.forensics.what_if import (
    Calibration,
    Figures,
    Ranges,
    RefusedMember,
    RefusedMembers,
    Spread,
    WhatIfResult,
    read_what_if,
)
from coordinator_udf.forensics.window import Window
from schemas.view_comments import COLUMN_COMMENTS

START = datetime(2026, 11, 22, 6, 52)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def rebalance(begin: float, **values: object) -> Rebalance:
    usual: dict[str, object] = {
        "generation": 6, "kind": "classic", "outcome": "Stable", "started": at(begin), "joined": at(begin + 4.9),
        "stable": at(begin + 5), "ended": at(begin + 5), "duration_ms": 5000, "trigger": "MEMBER_ADDED", "reason": None,
        "trigger_client_id": "flapper-2", "trigger_member_id": "f2", "trigger_timer": None,
        "client_reason": "not provided", "member_count": 2, "target_computed": None, "how": "expelled",
        "waited_client_id": "flapper-1", "waited_member_id": "f1", "lag_ms": 506, "expelled": ("f1",),
    }  # fmt: skip
    return Rebalance(**{**usual, **values})  # type: ignore[arg-type]


@pytest.fixture
def facts() -> GroupFacts:
    gone = Expulsion(
        at(14.9), "f1", "flapper-1", "session", "SESSION_EXPIRED", 6000, 6000, "f1b", 6633, last_request=at(8.9)
    )
    return GroupFacts(
        "storm.log",
        "</script><b>storm & co",
        [
            rebalance(10),
            rebalance(20, trigger="SESSION_EXPIRED", trigger_client_id="flapper-1", trigger_member_id="f1", how="left"),
            rebalance(30, kind="consumer", joined=None, how="not told", waited_client_id=None, waited_member_id=None,
                      outcome="NotTold", trigger="TOPICS_CHANGED",
                      reason="topic t grew from 3 to 6 partitions"),
        ],
        [
            Life("flapper-1", "f1", "flapper-1", 1, at(0), at(14.9), "expelled", False),
            Life("flapper-2", "f2", "flapper-2", 1, at(10), None, None, False),
        ],
        [gone],
        [
            Ownership("t", 0, "f1", "flapper-1", at(1), at(15), "first", None, True, 6000),
            Ownership("t", 0, "f2", "flapper-2", at(16), None, "moved", 1000, False, None),
        ],
        [Finding("silent member held up the group", 3, 8992, "all waited for flapper-1", "session.timeout.ms", at(10))],
        [Gap("unanswered", at(1), at(2), "2 requests have no answer")],
        [Refusals("OffsetCommit", "UNKNOWN_MEMBER_ID", "zombie commit", "flapper-1", 2, at(16))],
    )  # fmt: skip


@pytest.mark.parametrize("form", [ReportFormat.HTML, ReportFormat.MARKDOWN])
@pytest.mark.parametrize(
    ("certain_from", "said", "uncertain"),
    [(None, "nothing that is told of it is certain", 3), (at(15), "before 06:52:15.000 is not certain", 1)],
)
def test_what_rests_on_what_was_before_the_evidence_is_said_to_be_uncertain(
    facts: GroupFacts, form: ReportFormat, certain_from: datetime | None, said: str, uncertain: int
) -> None:
    assert "certain" not in render([facts], form, [])
    gap = Gap("begins in the middle", at(0), certain_from, "who was in it before is not told")
    text = render([replace(facts, gaps=[gap])], form, [])
    assert said in text
    assert [rebalance_sentence(r, replace(facts, gaps=[gap])).endswith(" (not certain)") for r in facts.rebalances] == [
        number < uncertain for number in range(3)
    ]
    assert text.count("(not certain)") == uncertain
    assert ("That is not certain." if certain_from is None else "Some of that is not certain.") in text


def test_a_partition_stands_idle_when_its_owner_is_dead_or_has_left(facts: GroupFacts) -> None:
    left = replace(facts.lives[1], until=at(18), ended_by="left")
    held = [facts.ownership[0], replace(facts.ownership[1], until=at(20.5))]
    idle = group_data(replace(facts, lives=[facts.lives[0], left], ownership=held), at(30))["idle"]
    assert [(bar["from"], bar["to"], bar["why"]) for bar in idle] == [
        ("2026-11-22T06:52:09.000", "2026-11-22T06:52:15.000", "flapper-1 was silent"),
        ("2026-11-22T06:52:15.000", "2026-11-22T06:52:16.000", "nobody had it"),
        ("2026-11-22T06:52:18.000", "2026-11-22T06:52:20.500", "flapper-2 had left"),
    ]


def test_a_partition_that_nobody_has_any_more_is_unserved_as_long_as_its_topic_is_consumed(facts: GroupFacts) -> None:
    held = [
        facts.ownership[0],
        replace(facts.ownership[0], partition=1, until=at(5), on_paper=False, on_paper_ms=None),
        # Nobody may want it any more.
        replace(facts.ownership[0], topic="u", until=at(5), on_paper=False, on_paper_ms=None),
    ]
    left = replace(facts, ownership=held)
    assert left.unserved_ms(at(30)) == 10_000
    idle = group_data(left, at(30))["idle"]
    assert [(bar["partition"], bar["from"][-6:], bar["to"][-6:]) for bar in idle if bar["why"] == "nobody had it"] == [
        ("t-1", "05.000", "15.000")
    ]


def test_an_administrator_removed_those_alone_who_went_then(facts: GroupFacts) -> None:
    """Static members that came back under other ids since the rebalance before are away, too."""
    removed = rebalance(
        14.9, trigger="MEMBER_LEFT", client_reason="member was removed by an admin", trigger_client_id="admin-java",
        members_left=("f1", "replaced"),
    )  # fmt: skip
    left = [
        replace(facts.lives[0], ended_by="left"),
        Life("i", "replaced", "other", 1, at(1), at(3), "replaced", False),
    ]
    sentence = rebalance_sentence(removed, replace(facts, lives=left))
    assert sentence.startswith("an administrator (admin-java) removed flapper-1;")


def test_a_sentence_tells_the_trigger_whom_all_waited_for_and_the_silence(facts: GroupFacts) -> None:
    first, second, third = (rebalance_sentence(r, facts) for r in facts.rebalances)
    assert first == (
        "flapper-2 joined; all waited for flapper-1, silent until a timer put it out (0.5 s after all others)"
    )
    assert second == "flapper-1 expired after 6.0 s of silence"
    assert third == "topic t grew from 3 to 6 partitions"
    assert rebalance_sentence(replace(facts.rebalances[2], outcome="Stable"), facts) == (
        "topic t grew from 3 to 6 partitions; for whom all waited is not told"
    )


def test_a_group_that_all_left_says_who_went_last(facts: GroupFacts) -> None:
    facts.lives[1] = replace(facts.lives[1], until=at(25), ended_by="left")
    assert at_the_end(facts) == "Nobody was in it from 06:52:25 on: the last, flapper-2, left"
    # Who was in it before the evidence began may be in it still.
    assert (
        at_the_end(replace(facts, gaps=[Gap("begins in the middle", at(0), at(5), "who was in it is not told")]))
        is None
    )


def test_times_of_several_days_have_dates(facts: GroupFacts) -> None:
    begin = timedelta(hours=17, minutes=7, seconds=50)
    later = replace(
        facts,
        rebalances=[replace(r, started=r.started + begin, ended=(r.ended or START) + begin) for r in facts.rebalances],
        lives=[replace(facts.lives[0], until=at(25) + begin, ended_by="left", before_until=at(-1))],
    )
    text = render([later], ReportFormat.MARKDOWN)
    assert "Nobody was in it from 2026-11-23 00:00:15 on: the last, flapper-1, left." in text
    assert "1. 2026-11-23 00:00:00.000, 5.0 s, generation 6: flapper-2 joined" in text
    page = render([later], ReportFormat.HTML)
    assert '<td class="what">2026-11-22 06:52:14.900</td>' in page
    axis = '"axis":{"format":"%m-%d %H:%M:%S"'
    assert axis in page
    assert axis not in render([facts], ReportFormat.HTML)


def test_dead_is_who_was_never_heard_again(facts: GroupFacts) -> None:
    first, gone = facts.rebalances[0], replace(facts.expulsions[0], came_back_as=None, came_back_after_ms=None)
    never, zombie = replace(facts, expulsions=[gone], refused=[]), replace(facts.refused[0], last_at=at(16))
    assert "all waited for flapper-1, dead, until a timer put it out" in rebalance_sentence(first, never)
    for heard in (
        facts,
        replace(never, refused=[zombie]),
        replace(never, expulsions=[replace(gone, replaced_before_ms=10)]),
        replace(never, expulsions=[replace(gone, shares_client_id=True)]),
        # A broker's own log alone tells of no requests.
        replace(never, expulsions=[replace(gone, last_request=None)]),
    ):
        assert "all waited for flapper-1, silent until a timer put it out" in rebalance_sentence(first, heard)


def test_the_partition_that_stood_longest_counts(facts: GroupFacts) -> None:
    other = Ownership("t", 1, "f2", "flapper-2", at(16), None, "first", 4000, False, None)
    assert replace(facts, ownership=[*facts.ownership, other]).unserved_ms(at(30)) == 7000


def test_a_static_member_is_called_as_its_process_calls_itself(facts: GroupFacts) -> None:
    facts.lives.append(Life("inst-0", "inst-0-b", "first", 2, at(1), None, None, without_rebalance=True, name="second"))
    expired = rebalance(
        40, trigger="SESSION_EXPIRED", trigger_client_id="first", trigger_member_id="inst-0-b", how=None
    )
    assert rebalance_sentence(expired, facts) == "second expired"
    removed = rebalance(
        50, trigger="MEMBER_LEFT", trigger_client_id="admin-1", trigger_member_id="", how=None,
        client_reason="member was removed by an admin", members_left=("inst-0-b",),
    )  # fmt: skip
    assert rebalance_sentence(removed, facts) == "an administrator (admin-1) removed second"


def test_who_was_removed_last_is_not_said_to_have_left(facts: GroupFacts) -> None:
    """A static member that closes stays in its group: an administrator's removal ends it."""
    removed = replace(facts.lives[1], until=at(18), ended_by="left", client_reason="member was removed by an admin")
    last = replace(facts, lives=[removed], rebalances=[])
    assert at_the_end(last) == "Nobody was in it from 06:52:18 on: the last, flapper-2, was removed by an administrator"
    waited = rebalance(60, how="left", waited_member_id="f2", waited_client_id="flapper-2", trigger_member_id="f1")
    assert "all waited for flapper-2, until an administrator removed it" in rebalance_sentence(waited, last)


def test_who_was_overtaken_is_not_said_to_have_joined(facts: GroupFacts) -> None:
    overtaken = rebalance(60, kind="consumer", joined=None, outcome="Superseded", how="overtaken")
    assert rebalance_sentence(overtaken, facts) == (
        "flapper-2 joined; flapper-1 didn't have its partitions yet; the next one began before all members were through"
    )


def test_markdown_has_a_line_a_rebalance(facts: GroupFacts) -> None:
    text = render([facts], ReportFormat.MARKDOWN, ["storm.log: requests 741"])
    assert "1. 06:52:10.000, 5.0 s, generation 6: flapper-2 joined; all waited for" in text
    assert "Look at `session.timeout.ms`." in text
    assert "```\nstorm.log: requests 741\n```\n" in text


def test_the_page_answers_the_ten_questions_in_words(facts: GroupFacts) -> None:
    """As a reader asks them who knows nothing of the charts."""
    again = Life("flapper-1", "f1b", "flapper-1", 2, at(21.5), None, None, False)
    facts.lives.append(replace(again, before_ended_by="expelled", before_until=at(14.9)))
    page = re.sub(r"<script.*", "", render([facts], ReportFormat.HTML), flags=re.DOTALL)
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    for answer in (
        "06:52:10.000 5.0 s",  # When did it rebalance, and for how long?
        "flapper-2 joined",  # Who set it off, and why?
        "all waited for flapper-1, silent until a timer put it out",  # For whom did all wait?
        "06:52:00.000 flapper-1 flapper-1 06:52:14.900 was put out by a timer 14.9 s",  # Who was in it when?
        "At the end the coordinator had in it: flapper-2, flapper-1.",  # Who stayed?
        "06:52:14.900 flapper-1 session 06:52:08.900 6.0 s 6.0 s came back 6.6 s later",  # Who was put out?
        "06:52:16.000 t-0 flapper-2 moved 1.0 s",  # Which partitions moved, and which had nobody?
        "06:52:01.000 t-0 flapper-1 first 6.0 s",  # Which were held by the dead?
        "silent member held up the group (3 times, 9.0 s)",  # Is it a storm, what is wrong?
        "Look at session.timeout.ms",  # Which setting?
        "OffsetCommit UNKNOWN_MEMBER_ID flapper-1 2 zombie commit",  # Whose requests were refused?
        "06:52:21.500 flapper-1 flapper-1 2 expelled at 06:52:14",  # Which processes were behind a client id?
        "Not shown (unanswered, from 06:52:01.000 to 06:52:02.000): 2 requests",  # What can't be known?
    ):
        assert answer in text, answer


def test_the_page_of_many_groups_is_bounded_and_says_what_it_leaves_out(
    facts: GroupFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [replace(facts, group_id=f"group-{number}") for number in range(40)]
    whole = render(groups, ReportFormat.HTML)
    assert whole.count("<section") == 40
    assert "have a section below" not in whole
    monkeypatch.setattr(report, "_MOST_CHARACTERS", 20_000)
    monkeypatch.setattr(report, "MOST_IN_OVERVIEW", 30)
    page = render(groups, ReportFormat.HTML)
    shown = page.count("<section")
    assert 1 < shown < 10
    assert f"The {shown} groups with most findings" in page
    assert f"of the others the first {30 - shown} stand in this table alone" in page
    assert "<code>--group NAME</code>" in page
    assert "group-29" in page
    assert "group-30" not in page


def test_a_chart_that_leaves_out_stays_says_so(facts: GroupFacts) -> None:
    facts.lives += [Life(f"client-{n}", f"m{n}", f"client-{n}", 1, at(n), None, None, False) for n in range(70)]
    assert "The chart has the first 60 of 72 members." in render([facts], ReportFormat.HTML)


def test_a_trace_has_a_process_a_group_and_a_thread_a_member(facts: GroupFacts) -> None:
    events = json.loads(render([facts], ReportFormat.PERFETTO))["traceEvents"]
    threads = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert threads == {"rebalances", "flapper-1", "flapper-2"}
    assert sum(event["ph"] == "X" for event in events) == 5


def test_the_window_quotes_what_it_is_given() -> None:
    assert Window(("it's", "b")).where("at") == "true AND group_id IN ('it\\'s', 'b')"


def test_the_page_draws_and_fetches_nothing(facts: GroupFacts, tmp_path: Path) -> None:
    page = tmp_path / "incident.html"
    page.write_text(render([facts], ReportFormat.HTML), encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert "<b>storm" not in text
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", text.partition("<script")[0])
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    ran = subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000",
            "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, check=True, timeout=180,
    )  # fmt: skip
    drawn = ran.stdout.partition('<script type="module"')[0]
    assert drawn.count("<svg") == 1
    assert drawn.count("mark-rect") >= 3
    assert "flapper-2</text>" in drawn
    # The page's own policy lets it fetch nothing; what it tried to would be said here.
    assert "default-src 'none'" in text
    assert "Content Security Policy" not in ran.stderr
    assert "Uncaught" not in ran.stderr


def test_there_is_a_sentence_for_each_trigger() -> None:
    triggers = set(re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)*\b", COLUMN_COMMENTS["trigger"]))
    assert {"MEMBER_ADDED", "LOADED"} <= triggers <= TRIGGERS.keys()


@pytest.mark.parametrize("form", [ReportFormat.HTML, ReportFormat.MARKDOWN])
def test_who_would_be_refused_under_other_settings_is_told_beside_what_they_would_do(
    facts: GroupFacts, form: ReportFormat
) -> None:
    figures = Figures(2, 1.0, 3, 0)
    ranges = Ranges(*[(0.0, 4.0)] * 4)
    members = RefusedMembers({}, {"java-1/1": RefusedMember("GroupMaxSizeReachedException: FULL", 0.25)})
    told = WhatIfResult(Calibration(4, 4, 4), figures, figures, Spread(ranges, ranges), ("this",), members)
    page = render([facts], form, what_if={facts.group_id: told})
    said = "efused for good under the changed settings (in 25 % of the worlds): java-1/1: GroupMaxSizeReachedException"
    assert said in page


@pytest.mark.parametrize("form", [ReportFormat.HTML, ReportFormat.MARKDOWN])
def test_what_a_prediction_does_not_count_or_change_is_told_beside_its_figures(
    facts: GroupFacts, form: ReportFormat, tmp_path: Path
) -> None:
    figures = {"rebalances": 0, "unowned_s": 0, "moves": 0, "expulsions": 0}
    ranges = {name: [0, 0] for name in figures}
    group = {
        "calibration": {"recorded": 4, "simulated": 4, "matched": 4},
        "spread": {"base": ranges, "changed": ranges},
        "unknown": [],
        "nothing_counted": "the log ends before the group is through",
        "without_effect": ["group.max.size: no member speaks the protocol classic"],
        "base_on_other_days": {"rebalances": 4, "unowned_s": 12.34, "moves": 9.6, "expulsions": 1},
    }
    path = tmp_path / "what-if.json"
    name = facts.group_id
    told = {"base": {name: figures}, "changed": {name: figures}, "groups": {name: group}, "options": ["--static"]}
    path.write_text(json.dumps(told))
    page = render([facts], form, what_if=read_what_if(path))
    assert "--static" in page
    assert "say nothing of it: the log ends before the group is through." in page
    assert "Makes no difference to this group: group.max.size: no member speaks the protocol classic." in page
    expected = "12.3 partition-seconds without an owner, 9.6 partitions that moved, 1 expulsions before the change."
    assert expected in page
