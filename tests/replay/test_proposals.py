"""Settings that a broker's answers tell are proposed where those that were given contradict them."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_udf.replay.explain.delay_bounds import DELAY
from coordinator_udf.replay.explain.proposals import proposed_settings
from coordinator_udf.replay.explain.session_bounds import SESSION
from coordinator_udf.replay.explain.setting_bounds import bounds_of
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from tests.conftest import shared
from tests.replay.broker_log import KafkaLog


def proposed(*place: str, given: tuple[str, ...] = ()) -> list[str]:
    source = read_source(shared(*place), "log", ReplayOptions.load(None, given))
    assert source.facts is not None
    found = proposed_settings(bounds_of(source.facts), source.settings)
    return [f"{proposal.name}={proposal.value}" for proposal in found]


def test_nothing_is_proposed_where_the_settings_fit() -> None:
    assert proposed("broker", "logs-dev", "storm.log.gz") == []
    assert proposed("broker", "logs-dev", "fuzz-consumer.log.gz") == []


def test_what_a_broker_was_set_to_is_proposed() -> None:
    found = proposed("broker", "logs-dev", "limits.log.gz")
    wanted = {"group.consumer.max.size=2", "group.max.size=3", "group.initial.rebalance.delay.ms=0"}
    assert wanted <= set(found)
    assert any(line.startswith("group.min.session.timeout.ms=") for line in found)


@pytest.mark.parametrize(
    "place",
    [
        ("broker", "logs-dev", "limits.log.gz"),
        ("evidence", "dev", "kip848.request.log.gz"),
        ("evidence", "ab", "dev", "W1-delay0.request.log.gz"),
        ("evidence", "ab", "dev", "W2-consumer.request.log.gz"),
    ],
    ids=lambda place: place[-1].partition(".")[0],
)
def test_with_what_is_proposed_the_log_is_explained(place: tuple[str, ...]) -> None:
    source = read_source(shared(*place), "log", ReplayOptions.load(None, proposed(*place)))
    _, verdict = run_and_compare(source)
    assert [d.request_id for d in verdict.differences if d.undecided is None] == []


def test_a_heartbeat_interval_is_proposed_unless_it_was_given() -> None:
    place = ("evidence", "ab", "dev", "W1-consumer.request.log.gz")
    setting = "group.consumer.heartbeat.interval.ms=1000"
    least = "group.consumer.min.heartbeat.interval.ms=1000"
    assert proposed(*place) == [setting, least]
    assert proposed(*place, given=(least, setting)) == []


def test_that_offsets_were_gone_tells_the_retention() -> None:
    given = ("offsets.retention.minutes=1", "offsets.retention.check.interval.ms=20000")
    assert set(proposed("broker", "logs-dev", "expiry.log.gz")) == set(given)
    assert proposed("broker", "logs-dev", "expiry.log.gz", given=given) == []


@pytest.mark.parametrize(
    ("joins_ms", "ended_ms", "rebalance_ms", "bounds"),
    [
        ((0,), 700, 60_000, [(450, 700)]),
        # Who joins while a new group waits makes it wait for the delay once more.
        ((0, 300), 1_400, 60_000, [(575, 700)]),
        ((0, 300, 1_300), 2_100, 60_000, [(616, 700)]),
        # Two delays or three may it have been.
        ((0, 1_700, 3_400, 5_100, 6_800), 12_100, 60_000, []),
        # Nobody waits for longer than the rebalance timeout.
        ((0, 300), 1_000, 1_000, []),
    ],
    ids=["alone", "two", "three", "not known", "rebalance timeout"],
)
def test_how_long_the_first_members_waited_tells_the_initial_delay(
    joins_ms: tuple[int, ...], ended_ms: int, rebalance_ms: int, bounds: list[tuple[int, int]], tmp_path: Path
) -> None:
    log = KafkaLog()
    members = [{"memberId": f"m{number}", "groupInstanceId": None, "metadata": ""} for number in range(len(joins_ms))]
    for number, arrives in enumerate(joins_ms):
        request: dict[str, object] = {
            "groupId": "g", "memberId": f"m{number}", "groupInstanceId": None, "sessionTimeoutMs": 10_000,
            "rebalanceTimeoutMs": rebalance_ms, "protocolType": "consumer", "protocols": [],
        }  # fmt: skip
        answer = {
            "throttleTimeMs": 0, "errorCode": 0, "generationId": 1, "protocolName": "range", "leader": "m0",
            "memberId": f"m{number}", "members": [] if number else members,
        }  # fmt: skip
        connection = chr(ord("a") + number)
        log.add("JOIN_GROUP", request, answer, arrives=arrives, takes=ended_ms - arrives, connection=connection)
    source = read_source(log.write(tmp_path / "log"), "log", ReplayOptions())
    assert source.facts is not None
    assert [(bound.least, bound.most) for bound in bounds_of(source.facts) if bound.name == DELAY] == bounds


def beat(log: KafkaLog, epoch: int, arrives: float, error: int = 0) -> None:
    request = {"groupId": "g", "memberId": "m", "memberEpoch": epoch, "rebalanceTimeoutMs": 300_000}
    answer = {
        "throttleTimeMs": 0, "errorCode": error, "memberId": None if error else "m", "memberEpoch": 0 if error else 1,
        "heartbeatIntervalMs": 0 if error else 1_000, "assignment": None,
    }  # fmt: skip
    log.add("CONSUMER_GROUP_HEARTBEAT", request, answer, arrives=arrives, version=0)


def test_who_was_silent_and_no_member_any_more_tells_the_session_of_consumer_groups(tmp_path: Path) -> None:
    log = KafkaLog()
    for start in (0, 60_000):
        beat(log, 0, start)
        beat(log, 1, start + 9_000)
        beat(log, 1, start + 20_000, error=25)
    source = read_source(log.write(tmp_path / "log"), "log", ReplayOptions())
    assert source.facts is not None
    told, needed = [one for one in proposed_settings(bounds_of(source.facts), source.settings) if "session" in one.name]
    assert told.option == "--set group.consumer.session.timeout.ms=10000"
    assert told.reason.startswith(" from ")
    assert ": 2 answers say 8749 to 11001, but the replay was given 45000" in told.reason
    assert needed.option == "--set group.consumer.min.session.timeout.ms=10000"


def test_who_gets_the_partitions_of_a_member_that_died_tells_the_session_of_consumer_groups() -> None:
    """A process that was killed never asks again, so that nothing is answered to it."""
    place = ("evidence", "dev", "kip848.request.log.gz")
    session, least = "group.consumer.session.timeout.ms=15000", "group.consumer.min.session.timeout.ms=15000"
    assert proposed(*place) == [session, least]
    assert proposed(*place, given=(least, session)) == []
    found = proposed("evidence", "ab", "dev", "W2-consumer.request.log.gz")
    assert "group.consumer.session.timeout.ms=10000" in found


#: Partition 0 of a topic.
_PLACE = {"topicPartitions": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": [0]}]}
_NOTHING: dict[str, list[object]] = {"topicPartitions": []}


@pytest.mark.parametrize(
    ("asked", "answered", "is_told"),
    [
        # It was silent, and another has its partition.
        ([], _PLACE, True),
        # It left, it was told to give the partition up, or another has something else.
        ([(-1, None)], _PLACE, False),
        ([(3, _NOTHING)], _PLACE, False),
        ([], _NOTHING, False),
    ],
    ids=["silent", "left", "gave up", "another partition"],
)
def test_a_partition_that_was_not_given_up_tells_that_its_owner_is_gone(
    asked: list[tuple[int, object]], answered: object, is_told: bool, tmp_path: Path
) -> None:
    log = KafkaLog()

    def told(member: str, epoch: int, arrives: float, to: int, assignment: object) -> None:
        request = {"groupId": "g", "memberId": member, "memberEpoch": epoch, "rebalanceTimeoutMs": 300_000}
        answer = {
            "throttleTimeMs": 0, "errorCode": 0, "memberId": member, "memberEpoch": to, "heartbeatIntervalMs": 1_000,
            "assignment": assignment,
        }  # fmt: skip
        log.add("CONSUMER_GROUP_HEARTBEAT", request, answer, arrives=arrives, version=0)

    told("other", 0, 0, 2, _NOTHING)
    told("dead", 0, 1_000, 3, _PLACE)
    for epoch, assignment in asked:
        told("dead", epoch, 1_500, max(epoch, -1), assignment)
    told("other", 3, 10_000, 3, None)
    told("other", 3, 11_500, 4, answered)
    source = read_source(log.write(tmp_path / "log"), "log", ReplayOptions())
    assert source.facts is not None
    bounds = [bound for bound in bounds_of(source.facts) if bound.name == SESSION and bound.most < 45_000]
    # The one who was told of no change at 10,000 would have been told of it a second after that at the latest.
    assert [(bound.least, bound.most) for bound in bounds] == ([(7_749, 10_501)] if is_told else [])


def test_a_change_of_settings_is_proposed_with_its_time(tmp_path: Path) -> None:
    source = read_source(shared("broker", "logs-dev", "whole-run.log.gz"), "log", ReplayOptions())
    assert source.facts is not None
    found = proposed_settings(bounds_of(source.facts), source.settings)
    (size,) = [one.reason for one in found if (one.name, one.value) == ("group.max.size", 3)]
    assert size.startswith(" from 2026-11-21 03:08:54Z to 2026-11-21 03:09:57Z")
    (retention,) = [one.reason for one in found if (one.name, one.value) == ("offsets.retention.minutes", 1)]
    assert retention.startswith(" from 2026-11-21 03:12:24Z")
    assert all(one.name != "group.consumer.session.timeout.ms" for one in found)


def joins(log: KafkaLog, member: str, epoch: int, arrives: float) -> None:
    request = {
        "groupId": "g", "memberId": member, "memberEpoch": 0, "instanceId": None, "rebalanceTimeoutMs": 300_000,
        "subscribedTopicNames": ["t"],
    }  # fmt: skip
    answer = {
        "throttleTimeMs": 0, "errorCode": 0, "memberId": member, "memberEpoch": epoch, "heartbeatIntervalMs": 5_000,
        "assignment": {"topicPartitions": []},
    }  # fmt: skip
    log.add("CONSUMER_GROUP_HEARTBEAT", request, answer, arrives=arrives, version=0)


def assignment_intervals(log: KafkaLog, tmp_path: Path) -> list[str]:
    source = read_source(log.write(tmp_path / "log"), "log", ReplayOptions())
    assert source.facts is not None
    found = proposed_settings(bounds_of(source.facts), source.settings)
    return [f"{one.option}{one.reason}".split(":")[0] for one in found]


def test_assignments_shortly_after_each_other_tell_that_there_is_no_interval(tmp_path: Path) -> None:
    log = KafkaLog()
    for number in range(1, 6):
        joins(log, f"m{number}", number, 100.0 * number)
    (line,) = assignment_intervals(log, tmp_path)
    assert line.startswith("--set group.consumer.assignment.interval.ms=0 from")


def test_members_that_join_into_an_old_assignment_tell_the_interval(tmp_path: Path) -> None:
    log = KafkaLog()
    # Assignments at 0, 4,000 and 8,000 ms; whoever joins in between is told the one before.
    for number in range(11):
        joins(log, f"m{number}", 1 + 2 * (number // 5), 800.0 * number)
    (line,) = assignment_intervals(log, tmp_path)
    assert line.startswith("--set group.consumer.assignment.interval.ms=4000 from")
