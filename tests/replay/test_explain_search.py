"""How the search for an order goes: what may happen next, and how the tries are shared out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator_udf.log.rows import control_rows
from coordinator_udf.replay.explain import explain
from coordinator_udf.replay.explain.bounds import Bounds
from coordinator_udf.replay.explain.machine import GroupMachine
from coordinator_udf.replay.explain.points import Point
from coordinator_udf.replay.explain.prompt import Prompt
from coordinator_udf.replay.explain.rebase import Rebase
from coordinator_udf.replay.explain.results import GroupKey
from coordinator_udf.replay.explain.steps import Row, Step, shared_event, steps_of, with_news_after_loading
from coordinator_udf.replay.explain.walk import Walk
from coordinator_udf.replay.recording import ReplaySource
from schemas.requests import CONTROL_APIS
from tests.replay.broker_log import START_MS, KafkaLog, one_member, read


def steps(source: ReplaySource) -> list[Step]:
    assert source.facts is not None
    rows = [row for row in source.rows if row["api"] not in CONTROL_APIS]
    answers = {answer.request_id: answer for answer in source.recording.answers}
    return steps_of(rows, "g", source.facts.entries, answers, Prompt([], 100))


def after_joining(tmp_path: Path, event_ms: int) -> Walk:
    """A walk up to a group's initial delay, which ends 3,010 ms after the log's start, with an event of the shard."""
    log = KafkaLog()
    log.join("", "m-1", 79, arrives=0, connection="a")
    log.join("m-1", "m-1", arrives=10, takes=3_180, connection="a")
    log.heartbeat("m-1", 27, generation=0, arrives=3_100, connection="b")
    source = read(log, tmp_path)
    (event,) = control_rows(partitions=1, log_ts=START_MS + event_ms, api="TopicMetadata", body={"topics": []})
    machine = GroupMachine(0, source.settings, keep_log=False)
    events = [shared_event({**event, "offset": 0}, Bounds().late_ms, 0)]
    walk = Walk(machine, steps(source), events, Bounds(), lambda *_: False, prompt=Prompt([], 100))
    while walk.first < 2 and (option := walk.usual()) is not None:
        walk.take(option)
    return walk


def test_an_event_of_the_shard_may_come_before_timers_that_are_late(tmp_path: Path) -> None:
    walk = after_joining(tmp_path, 3_020)
    (early,) = [option for option in walk.options() if option.place is None and option.late_ms]
    assert (early.at_ms - START_MS, early.late_ms) == (3_020, 11)
    walk.take(early)
    assert walk.machine.next_timer()[0] - START_MS == 3_021
    assert [row.api for row in walk.inserted] == ["DelayTimers"]


def test_timers_may_fire_before_an_event_of_the_shard_that_is_late(tmp_path: Path) -> None:
    walk = after_joining(tmp_path, 2_800)
    (timers,) = [option for option in walk.options() if option.place is None and not option.usual]
    assert (timers.at_ms - START_MS, timers.late_ms) == (3_010, 0)
    walk.take(timers)
    assert [at_ms - START_MS for at_ms in walk.next_event()[:1]] == [3_011]
    assert walk.next_event()[1] == 2_800 + Bounds().late_ms - 3_011


def test_timers_never_fire_before_an_event_of_the_shard_that_has_happened_by_then(tmp_path: Path) -> None:
    walk = after_joining(tmp_path, 3_010 - Bounds().late_ms)
    assert [option for option in walk.options() if option.place is None and not option.usual] == []


def test_timers_are_not_later_than_their_window_for_an_event_of_the_shard(tmp_path: Path) -> None:
    walk = after_joining(tmp_path, 3_900)
    assert [option for option in walk.options() if option.place is None and option.late_ms] == []


def test_what_was_late_is_as_late_where_it_happens_again(tmp_path: Path) -> None:
    walk = after_joining(tmp_path, 3_020)
    here = walk.point()
    (early,) = [option for option in walk.options() if option.place is None and option.late_ms]
    walk.take(early)
    inserted = list(walk.inserted)
    walk.back_to(here)
    walk.catch_up(START_MS + 3_020, inserted)
    assert walk.next_event()[0] - START_MS == 3_021


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Callable[[ReplaySource, Bounds], list[str | None]]:
    """Searches the group g of a source within bounds; the requests whose answers nothing explains."""

    def found(source: ReplaySource, bounds: Bounds) -> list[str | None]:
        key: GroupKey = (0, "g")
        monkeypatch.setattr(explain, "groups_that_differ", lambda *_: [key])
        assert source.facts is not None
        outcome = explain.explain(source, source.facts, {}, bounds).outcomes[key]
        return [outcome.request_ids[answer.place] for answer in outcome.unexplained]

    return found


@pytest.mark.parametrize("again", [0, 4], ids=["spent for good", "given again"])
def test_one_stretch_does_not_spend_the_tries_of_those_that_follow(
    tmp_path: Path, search: Callable[[ReplaySource, Bounds], list[str | None]], again: int
) -> None:
    log = one_member(KafkaLog())
    for number in range(6):
        log.heartbeat("m-1", arrives=4_000 + number, takes=40, connection=chr(ord("b") + number))
    wrong = log.heartbeat("m-1", 22, arrives=4_006, takes=40, connection="a")
    for number in range(60):
        log.heartbeat("m-1", arrives=4_100 + 10 * number, connection="a")
    request = {"groupId": "g", "memberId": "m-1"}
    answer = {"throttleTimeMs": 0, "errorCode": 0}
    log.add("LEAVE_GROUP", request, answer, version=1, arrives=5_000.0, takes=3, connection="b")
    moved = log.heartbeat("m-1", arrives=5_000.4, takes=1, connection="a")
    bounds = Bounds(tries=60, tries_a_step=again, tries_of_follow_ups=60)
    assert search(read(log, tmp_path), bounds) == ([wrong] if again else [wrong, moved])


def test_what_was_loaded_is_looked_for_less_often_where_nothing_explains_many_answers(
    tmp_path: Path, search: Callable[[ReplaySource, Bounds], list[str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = one_member(KafkaLog())
    log.heartbeat("m-1", 16, arrives=5_000)
    log.join("m-1", "", 14, arrives=5_100)
    wrong = [log.heartbeat("m-1", 82, arrives=5_200 + 10 * number) for number in range(60)]
    looked_for: list[int] = []
    loaded = Rebase.loaded

    def noted(self: Rebase, load: Point, until: int) -> list[tuple[int, str]]:
        looked_for.append(until)
        return loaded(self, load, until)

    monkeypatch.setattr(Rebase, "loaded", noted)
    assert search(read(log, tmp_path), Bounds()) == wrong
    # With each of the first eight, the sixteenth and the thirty-second, and where it is tried to go on behind these.
    assert len(looked_for) < len(wrong) // 2


def test_topics_that_come_while_a_shard_is_loaded_are_heard_of_after_it() -> None:
    def row(api: str, at_ms: int, request_id: str | None = None) -> Row:
        return {"api": api, "log_ts": at_ms, "request_id": request_id}

    told = [("TopicMetadata", 0), ("Unload", 10), ("TopicMetadata", 20), ("LoadGroup", 30), ("Failover", 40)]
    rows = [*(row(api, at_ms) for api, at_ms in told), row("Heartbeat", 50, "r")]
    ordered = [(found["api"], found["log_ts"]) for found in with_news_after_loading(rows)]
    assert ordered == [*told[:2], *told[3:], ("TopicMetadata", 40), ("Heartbeat", 50)]
    # What was never loaded again stays as it is.
    assert with_news_after_loading(rows[:4]) == rows[:4]
