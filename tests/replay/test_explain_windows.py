"""Explanations respect every window: no request, timer or event of a shard happens at a time at which it can't have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.replay.explain import explain
from coordinator_udf.replay.explain.bounds import Bounds
from coordinator_udf.replay.explain.machine import GroupMachine
from coordinator_udf.replay.explain.prompt import Prompt
from coordinator_udf.replay.explain.results import GroupKey, Outcome
from coordinator_udf.replay.explain.steps import Row, named_groups
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from schemas.requests import CONTROL_APIS
from tests.conftest import shared
from tests.replay.broker_log import START_MS, KafkaLog, held_up

LATE_MS = Bounds().late_ms


class Late(NamedTuple):
    """A timer that fires later: when it was due at first, by when it has to fire, and when it does, in milliseconds."""

    due_ms: int
    latest_ms: int
    until_ms: int


def explained(path: Path, monkeypatch: pytest.MonkeyPatch) -> ReplaySource:
    """A log with all of its groups searched."""

    def all_groups(rows: list[Row], *_: object) -> list[GroupKey]:
        asked = (row for row in rows if row["api"] not in CONTROL_APIS)
        return sorted({(row["partition"], group_id) for row in asked for group_id in named_groups(row)})

    monkeypatch.setattr(explain, "groups_that_differ", all_groups)
    source = read_source(path, path.name, ReplayOptions())
    run_and_compare(source)
    return source


def late_timers(source: ReplaySource, key: GroupKey, outcome: Outcome) -> Iterator[Late]:
    """The timers that an order has late, found by going through it again."""
    partition, group_id = key
    machine = GroupMachine(partition, source.settings, keep_log=False)
    windows = dict(zip(outcome.request_ids, outcome.windows_ms, strict=True))
    latest_ms: dict[int, int] = {}
    rows = (row for row in source.rows if row["partition"] == partition)
    for row in rows:
        body = msgspec.json.decode(row["body"]) if row["api"] in {"AdoptGroup", "DelayTimers"} else {}
        if row["api"] not in CONTROL_APIS and group_id not in set(named_groups(row)):
            continue
        if body.get("groupId", group_id) != group_id:
            continue
        while machine.next_timer()[0] <= row["log_ts"]:
            number = machine.timer_number
            machine.fire(machine.next_timer()[0])
            note(machine, number, LATE_MS, latest_ms)
        number, due = machine.timer_number, machine.due_by(body.get("untilMs", 0))
        machine.handle(Request(*(row[name] for name in Request._fields)))
        if row["api"] == "DelayTimers":
            for place, (due_ms, was) in enumerate(due):
                yield Late(due_ms, latest_ms[was], body["untilMs"])
                latest_ms[number + place] = latest_ms[was]
        else:
            slack_ms = windows[row["request_id"]][1] - row["log_ts"] if row["request_id"] in windows else LATE_MS
            note(machine, number, max(slack_ms, 0), latest_ms)


def note(machine: GroupMachine, number: int, slack_ms: int, latest_ms: dict[int, int]) -> None:
    """Notes by when timers from a number on fire: what is due when whoever armed them came as late as may be."""
    for due_ms, armed in machine.due_by(2**62):
        if armed >= number:
            latest_ms[armed] = due_ms + slack_ms + LATE_MS


@pytest.mark.parametrize("name", ["fuzz-classic", "fuzz-consumer", "storm", "migrate"])
def test_no_request_and_no_timer_lies_outside_its_window(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = explained(shared("broker", "logs-dev", f"{name}.log.gz"), monkeypatch)
    assert source.explained is not None
    times = {}
    for key, outcome in source.explained.outcomes.items():
        times.update({(key, outcome.request_ids[place]): at_ms for place, at_ms in outcome.course})
        windows = zip(outcome.request_ids, outcome.windows_ms, strict=True)
        outside = [each for each, (since, until) in windows if not since <= times[key, each] <= until]
        assert outside == []
        late = late_timers(source, key, outcome) if any(row.api for row in outcome.inserted) else ()
        assert [each for each in late if not each.due_ms <= each.until_ms <= each.latest_ms] == []
    assert len(times) >= source.requests * 0.9


def test_what_comes_before_a_late_timer_keeps_its_own_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = held_up().write(tmp_path / "log")
    source = explained(path, monkeypatch)
    assert source.explained is not None
    (key,) = source.explained.outcomes
    late = list(late_timers(source, key, source.explained.outcomes[key]))
    assert [each.due_ms - START_MS for each in late[:1]] == [3_010]
    assert all(each.due_ms < each.until_ms <= each.latest_ms for each in late)
    beats = [row["log_ts"] - START_MS for row in source.rows if row["api"] == "Heartbeat"]
    assert beats == [*(3_020 + 15 * number for number in range(9)), 3_250]


@pytest.mark.parametrize(
    ("error", "bound_ms"),
    [(22, 151), (42, 581)],  # ILLEGAL_GENERATION of the shard, INVALID_REQUEST that is told before one is asked
)
def test_what_reached_the_shard_tells_by_when_a_join_was_handled(tmp_path: Path, error: int, bound_ms: int) -> None:
    log = KafkaLog()
    # The shard stands still: nothing that arrives soon is answered in time.
    joined = log.join("m-1", "m-1", arrives=0, takes=2_000, connection="a")
    log.heartbeat("m-2", error, arrives=50, takes=100, connection="b")
    log.heartbeat("m-2", 22, arrives=80, takes=500, connection="b")
    source = read_source(log.write(tmp_path / "log"), "log", ReplayOptions(partitions=1))
    assert source.facts is not None
    entries = source.facts.entries
    by_ms = Prompt(entries.values(), handover_ms=100).handled_by_us(entries[joined]) // 1_000 - START_MS
    assert by_ms in range(bound_ms - 2, bound_ms + 1)


@pytest.mark.parametrize(("queued_ms", "bound_ms"), [(400, 551), (90, 101)])
def test_a_join_is_handled_later_while_the_broker_takes_nothing_from_its_queue(
    tmp_path: Path, queued_ms: int, bound_ms: int
) -> None:
    log = KafkaLog()
    joined = log.join("m-1", "m-1", arrives=0, takes=2_000, connection="a")
    log.join("m-2", "m-2", arrives=50, takes=1_900, connection="b", requestQueueTimeMs=queued_ms)
    source = read_source(log.write(tmp_path / "log"), "log", ReplayOptions(partitions=1))
    assert source.facts is not None
    entries = source.facts.entries
    by_ms = Prompt(entries.values(), handover_ms=100).handled_by_us(entries[joined]) // 1_000 - START_MS
    assert by_ms in range(bound_ms - 2, bound_ms + 1)
