"""Recorded loops of Kafka's members and coordinator come out the same in worlds of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator_udf.replay.members.failovers import _Walk, find_failovers
from coordinator_udf.replay.members.member_ids import member_ids
from coordinator_udf.replay.members.recorded_coordinator import RecordedFailover, RequestKey
from coordinator_udf.replay.members.recording import Line, RecordedMembers, read_recording
from coordinator_udf.simulation.recorded.comparison import run_in_world
from coordinator_udf.simulation.recorded.world import RecordedWorld
from tests.conftest import ROOT, shared
from tests.nightly import some_or_many

SAMPLES = ROOT / "tests" / "data" / "members"
FAMILIES = ("loop-classic", "loop-consumer", "loop-mixed")


def _recordings(family: str) -> list[Path]:
    return sorted(shared("oracle-member", "traces").glob(f"{family}-*.jsonl.gz"))


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("loop-*.gz")), ids=lambda path: path.name.split(".")[0])
def test_a_sample_comes_out_the_same(path: Path) -> None:
    recording = read_recording(path)
    verdict = run_in_world(recording)
    assert verdict.difference is None
    compared = {"request", "response", "disconnect", "metadata"}
    assert verdict.identical == sum(
        line["dir"] in {"out", "coord"} or line["type"] in compared for _, line in recording.lines
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all_loops_come_out_the_same(family: str) -> None:
    verdicts = {path.name: run_in_world(read_recording(path)) for path in _recordings(family)}
    assert verdicts
    assert {name: verdict.difference for name, verdict in verdicts.items() if verdict.difference} == {}


def test_failovers_are_found_where_answers_show_them() -> None:
    recording = read_recording(SAMPLES / "loop-classic-0019.jsonl.gz")
    ids = member_ids(recording)
    end = recording.lines[-1][0] + 1
    found = find_failovers(recording, ids)
    assert [failover.node for failover in found] == [1, 2, 0]
    assert _explained_until(recording, found, ids) == end
    assert _explained_until(recording, found[:2], ids) < end


def _explained_until(
    recording: RecordedMembers, failovers: Iterable[RecordedFailover], ids: Mapping[RequestKey, str]
) -> int:
    """The number of the first line at which our shard answers otherwise than Kafka's; after the last, if nowhere."""
    walk = _Walk(recording, ids)
    for failover in failovers:
        walk.coordinator.fail_over(failover)
    return walk.go(recording.lines[-1][0] + 1)


def _changed(recording: RecordedMembers, number: int) -> RecordedMembers:
    """A recording in which the answer that arrives with one line is of another generation or epoch."""
    lines = list(recording.lines)
    line = lines[number - 1][1]
    name = "memberEpoch" if "memberEpoch" in line["body"] else "generationId"
    lines[number - 1] = (number, {**line, "body": {**line["body"], name: line["body"][name] + 1}})
    return replace(recording, lines=lines)


def test_an_answer_that_kafka_never_gave_is_reported_where_it_stands() -> None:
    recording = read_recording(SAMPLES / "loop-consumer-0014.jsonl.gz")
    numbers = [
        number
        for number, line in recording.lines
        if line["type"] == "response" and line.get("body", {}).get("memberEpoch") and not line["body"]["errorCode"]
    ]
    for number in numbers[:: some_or_many(50, 10)]:
        changed = _changed(recording, number)
        difference = run_in_world(changed).difference
        assert difference is not None
        key = changed.lines[number - 1][1]["m"], changed.lines[number - 1][1]["req"]
        reported = recording.lines[difference.line - 1][1]
        assert (reported["m"], reported["req"]) == key


def _without(recording: RecordedMembers, unwanted: Callable[[Line], bool]) -> RecordedMembers:
    """A recording that lacks the first line of a kind."""
    number = next(number for number, line in recording.lines if unwanted(line))
    return replace(recording, lines=[line for line in recording.lines if line[0] != number])


@pytest.mark.parametrize(
    "unwanted",
    [
        lambda line: line["type"] == "poll" and line["ts"] % 1000 == 500,
        lambda line: line["type"] == "op" and line["op"] == "subscribe",
        lambda line: line["type"] == "response" and line["dir"] == "in" and line["api"] == "ConsumerGroupHeartbeat",
        lambda line: line["type"] == "metadata" and line["ts"] > 1_700_000_000_100,
        lambda line: line["type"] == "crash",
    ],
    ids=["call", "subscription", "answer", "metadata", "crash"],
)
def test_a_world_goes_another_way_without_what_happened_to_it(unwanted: Callable[[Line], bool]) -> None:
    recording = read_recording(SAMPLES / "loop-mixed-0002.jsonl.gz")
    assert run_in_world(_without(recording, unwanted)).difference is not None


def test_a_world_that_breaks_when_all_has_happened_is_different(monkeypatch: pytest.MonkeyPatch) -> None:
    run = RecordedWorld.run

    def run_and_break(world: RecordedWorld) -> None:
        run(world)
        raise KeyError("a member that isn't there")

    recording = read_recording(SAMPLES / "loop-mixed-0002.jsonl.gz")
    whole = run_in_world(recording)
    monkeypatch.setattr(RecordedWorld, "run", run_and_break)
    verdict = run_in_world(recording)
    assert (verdict.identical, verdict.different) == (whole.identical, 1)
    assert verdict.difference is not None
    assert verdict.difference.line == recording.lines[-1][0]
    assert verdict.difference.failure == 'KeyError: "a member that isn\'t there"'
