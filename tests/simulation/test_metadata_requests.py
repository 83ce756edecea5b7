"""Questions for metadata are lost like other requests, and asked again as Kafka's clients do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator_udf.members.inputs import Input, Metadata
from coordinator_udf.members.outputs import MetadataRequest, Output, Request
from coordinator_udf.simulation.coordinator import Answered
from coordinator_udf.simulation.invariants import violations
from coordinator_udf.simulation.network import Connection
from coordinator_udf.simulation.plan import Cut, Hang, MemberPlan, NetworkPlan, Slow, TopicPlan, WorldPlan
from coordinator_udf.simulation.process import Process
from coordinator_udf.simulation.world import World

_REQUEST_TIMEOUT_MS = 30_000
_PROTOCOLS = ("classic", "consumer")


class _Times:
    """Keeps when a member first asked for metadata, and when it first had them, from the world's start."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self.asked_ms: list[int] = []
        self.told_ms: list[int] = []

    def did(self, process: Process, now_ms: int, output: Output) -> None:
        if isinstance(output, MetadataRequest):
            self.asked_ms.append(now_ms - self._start_ms)

    def got(self, process: Process, now_ms: int, event: Input) -> None:
        if isinstance(event, Metadata):
            self.told_ms.append(now_ms - self._start_ms)

    def reached(self, connection: Connection, request: Request, now_ms: int) -> None:
        """Keeps nothing of requests to the coordinator."""

    def answered(self, answer: Answered) -> None:
        """Keeps nothing of its answers."""


def _plan(protocol: str, **changes: Any) -> WorldPlan:
    member = MemberPlan("c1", 1, "g", ("t",), 0, {"group.protocol": protocol}, **changes)
    return WorldPlan((member,), (TopicPlan("t", 3),), 200_000, network=NetworkPlan((2, 2)), quiet_ms=60_000)


def _times(plan: WorldPlan, seed: int = 0) -> _Times:
    times = _Times(plan.start_ms)
    history = World(plan, seed, watcher=times).run()
    assert not violations(history)
    return times


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_nobody_in_the_way_a_question_takes_two_messages(protocol: str) -> None:
    times = _times(_plan(protocol))
    assert times.told_ms[0] == times.asked_ms[0] + 4


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_who_is_cut_off_asks_again_after_the_request_timeout_and_a_backoff(protocol: str) -> None:
    times = _times(_plan(protocol, cuts=(Cut(0, 5_000),)))
    waited_ms = times.told_ms[0] - times.asked_ms[0] - _REQUEST_TIMEOUT_MS - 4
    assert 80 <= waited_ms <= 120, "retry.backoff.ms, give or take a fifth"


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_an_answer_is_lost_to_who_is_cut_off_as_it_is_sent(protocol: str) -> None:
    asked_ms = _times(_plan(protocol)).asked_ms[0]
    times = _times(_plan(protocol, cuts=(Cut(asked_ms + 1, 3),)))
    assert times.told_ms[0] > asked_ms + _REQUEST_TIMEOUT_MS


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_over_a_slow_link_a_question_takes_longer_both_ways(protocol: str) -> None:
    times = _times(_plan(protocol, slow=(Slow(0, 20_000, 700),)))
    assert times.told_ms[0] == times.asked_ms[0] + 4 + 2 * 700
    times = _times(_plan(protocol, slow=(Slow(0, 20_000, 16_000),)))
    assert times.told_ms[0] > times.asked_ms[0] + _REQUEST_TIMEOUT_MS


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_questions_are_lost_with_their_connections_and_asked_again_with_a_growing_backoff(protocol: str) -> None:
    plan = _plan(protocol)
    lossy = replace(plan, network=NetworkPlan((2, 2), 0.5))
    waited_ms = []
    for seed in range(20):
        times = _Times(plan.start_ms)
        World(lossy, seed, watcher=times).run()
        waited_ms.append(times.told_ms[0] - times.asked_ms[0])
    assert 4 in waited_ms
    assert any(86 <= one <= 126 for one in waited_ms), "the first was lost: 100 ms give or take a fifth"
    assert any(one >= 200 for one in waited_ms), "two were lost: 100 ms, then 200"


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_a_process_that_hangs_asks_again_only_then(protocol: str) -> None:
    times = _times(_plan(protocol, cuts=(Cut(0, 5_000),), hangs=(Hang(20_000, 30_000),)))
    assert times.told_ms[0] == 50_004


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_a_process_that_ended_meanwhile_asks_nothing(protocol: str) -> None:
    times = _times(_plan(protocol, cuts=(Cut(0, 5_000),), crash_at_ms=10_000))
    assert not times.told_ms
