"""Measures of what real clients told of their callbacks: the figures that another program reckoned from them."""

from __future__ import annotations

import json
import re

import pytest

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.history import ApplicationEvent
from coordinator_udf.simulation.measures import (
    expulsion_times,
    move_times,
    stopped_each_ms,
    unowned_each_ms,
    unowned_ms,
)
from coordinator_udf.simulation.plan import Hang, MemberPlan, TopicPlan, WorldPlan
from coordinator_udf.simulation.what_if.change import Change, changed_plan
from coordinator_udf.simulation.what_if.group_log import read_groups
from coordinator_udf.simulation.what_if.log_entries import read_entries
from coordinator_udf.simulation.world import World
from tests.conftest import SAMPLE_LOG, shared
from tests.simulation.short_sessions import SHORT_SESSIONS

_EVENTS = {"killed": "crash", "block": "stall", "unblock": "resume", "close-command": "close"}
#: Partition-seconds without an owner and moves since the first disturbance, as the recordings' README has them.
RUNS = {
    "W1-base": (34.5, 46), "W1-static": (24.1, 0), "W1-cooperative": (19.7, 25), "W1-consumer": (16.7, 23),
    "W2-base": (111.5, 8), "W2-session30": (562.7, 0), "W2-consumer": (61.7, 8), "W3-static": (4.3, 8),
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_callbacks_of_real_clients_are_measured_alike(run: str) -> None:
    folder = shared("evidence", "ab", "dev")
    head = (folder / f"{run}.timeline.txt").read_text().splitlines()[0]
    found = re.search(r"partitions=(\d+)", head)
    assert found is not None
    partitions = {TopicPartition("t", number): 0 for number in range(int(found[1]))}
    told = sorted(map(json.loads, (folder / f"{run}.callbacks.jsonl").read_text().splitlines()), key=lambda t: t["t"])
    end_ms = next(line["t"] for line in told if line["event"] == "end")
    events = [
        ApplicationEvent(
            line["t"],
            "g",
            line["client"],
            line["run"],
            _EVENTS.get(line["event"], line["event"]),
            tuple(TopicPartition("t", number) for number in line.get("partitions", ())),
        )
        for line in told
        if line["t"] <= end_ms and line["event"] != "poll"
    ]
    start_ms = next(one.ts_ms for one in events if one.event in {"stall", "close", "crash"})
    unowned_s, moves = RUNS[run]
    assert round(unowned_ms(events, partitions, (start_ms, end_ms)) / 1000, 1) == unowned_s
    assert sum(time >= start_ms for time in move_times(events)) == moves


def event(ts_ms: int, client_id: str, name: str, *numbers: int) -> ApplicationEvent:
    return ApplicationEvent(ts_ms, "g", client_id, 1, name, tuple(TopicPartition("t", number) for number in numbers))


EVENTS = [
    event(0, "a", "start"),
    event(3_000, "a", "assigned", 0, 1),
    event(4_000, "b", "start"),
    event(5_000, "a", "revoked", 1),
    event(6_000, "b", "assigned", 1),
    event(7_000, "a", "revoked", 0),
    event(7_500, "b", "stall"),
    event(8_000, "a", "assigned"),
    event(9_000, "b", "crash"),
    event(9_500, "a", "close"),
    event(9_500, "a", "lost"),
    event(9_600, "a", "closed"),
]


@pytest.mark.parametrize(
    ("span", "stopped", "unowned"),
    [
        ((0, 10_000), {"a": 3_000 + 1_000, "b": 2_000}, [3_000 + 3_000, 3_000 + 1_000 + 1_000]),
        ((2_000, 7_400), {"a": 1_000 + 400, "b": 2_000}, [1_000 + 400, 1_000 + 1_000]),
        ((9_100, 9_200), {"a": 0, "b": 0}, [100, 100]),
    ],
)
def test_who_stood_and_what_had_no_owner(span: tuple[int, int], stopped: dict[str, int], unowned: list[int]) -> None:
    partitions = {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0}
    assert stopped_each_ms(EVENTS, span) == stopped
    assert list(unowned_each_ms(EVENTS, partitions, span).values()) == unowned


def test_a_member_that_was_told_nothing_yet_stands_until_the_end() -> None:
    assert stopped_each_ms(EVENTS[:1], (0, 500)) == {"a": 500}


def test_a_member_that_is_expelled_twice_counts_twice() -> None:
    """A member of KIP-848 keeps its id when it comes back."""
    hangs = (Hang(20_000, 15_000), Hang(60_000, 15_000))
    members = tuple(
        MemberPlan(f"c{number}", 1, "g", ("t",), 1_000, {"group.protocol": "consumer"}, hangs=hangs if number else ())
        for number in range(2)
    )
    plan = WorldPlan(members, (TopicPlan("t", 4),), 100_000, SHORT_SESSIONS)
    history = World(plan, 0).run()
    since_ms = [time - plan.start_ms for time in expulsion_times(history.decisions, "g")]
    assert [round(time_ms, -4) for time_ms in since_ms] == [30_000, 70_000]


def test_members_that_come_too_late_to_join_again_count_as_expelled() -> None:
    """Three are killed; with sessions of a minute the others wait for them only as long as a rebalance may take."""
    group = next(one for one in read_groups(read_entries(SAMPLE_LOG), {}) if one.group_id == "crash-a")
    change = Change(session_timeout_ms=60_000, max_poll_interval_ms=5_000)
    history = World(changed_plan(group.plan, change), 0).run()
    assert len(expulsion_times(history.decisions, "crash-a")) == 3


@pytest.mark.parametrize(("born_ms", "unowned"), [(0, 6_000), (2_500, 3_500), (5_500, 1_500), (20_000, 0)])
def test_a_partition_lacks_an_owner_from_when_it_came_to_be(born_ms: int, unowned: int) -> None:
    """Nobody has it until 4 s, from 5 s to 6 s, and from 9 s on."""
    partition = TopicPartition("t", 1)
    events = [event(4_000, "a", "assigned", 1), *EVENTS[3:]]
    assert unowned_each_ms(events, {partition: born_ms}, (0, 10_000)) == {partition: unowned}
