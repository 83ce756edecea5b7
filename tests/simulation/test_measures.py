"""Measures of what real clients told of their callbacks: the figures that another program reckoned from them."""

from __future__ import annotations

import json
import re

import pytest

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.history import MemberEvent
from coordinator_udf.simulation.measures import first_disturbance_ms, move_times, unowned_ms
from tests.conftest import shared

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
    partitions = [TopicPartition("t", number) for number in range(int(found[1]))]
    told = sorted(map(json.loads, (folder / f"{run}.callbacks.jsonl").read_text().splitlines()), key=lambda t: t["t"])
    end_ms = next(line["t"] for line in told if line["event"] == "end")
    events = [
        MemberEvent(
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
    start_ms = first_disturbance_ms(events)
    assert start_ms is not None
    unowned_s, moves = RUNS[run]
    assert round(unowned_ms(events, partitions, (start_ms, end_ms)) / 1000, 1) == unowned_s
    assert sum(time >= start_ms for time in move_times(events)) == moves
