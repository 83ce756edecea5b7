"""What a request log tells of each group and of how its members behaved."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.simulation.what_if.change import Change
from coordinator_udf.simulation.what_if.comparison import compare
from coordinator_udf.simulation.what_if.group_log import GroupLog, read_groups
from coordinator_udf.simulation.what_if.log_entries import read_entries
from coordinator_udf.simulation.what_if.other_kinds import not_simulated
from tests.conftest import SAMPLE_LOG, shared


def _with_timeouts(session_ms: int, rebalance_ms: int) -> list[Entry]:
    """The sample's requests, but that one client asks for other timeouts and is refused."""
    entries = read_entries(SAMPLE_LOG)
    client_id = next(entry.client_id for entry in entries if entry.api == "JoinGroup")
    refused = {"errorCode": Errors.INVALID_SESSION_TIMEOUT, "memberId": ""}
    asked = {"sessionTimeoutMs": session_ms, "rebalanceTimeoutMs": rebalance_ms}
    return [
        msgspec.structs.replace(
            entry, request={**entry.request, **asked}, response={**(entry.response or {}), **refused}
        )
        if entry.api == "JoinGroup" and entry.client_id == client_id
        else entry
        for entry in entries
    ]


@pytest.mark.parametrize("asked_ms", [-1, 2**31 - 1])
def test_a_client_whose_timeouts_were_refused_is_said_to_be_left_out(asked_ms: int) -> None:
    group = next(one for one in read_groups(_with_timeouts(asked_ms, asked_ms), {}) if one.group_id == "crash-a")
    short = replace(group, plan=replace(group.plan, end_ms=5_000))
    outcome = compare(short, Change(), range(1), (None, None))
    assert outcome.calibration.recorded == len(group.rebalances) > 0
    (said,) = [text for text in outcome.unknown if "never let in" in text]
    assert not any(said.split()[1] == member.client_id for member in group.plan.members)


def test_a_timeout_that_the_coordinator_takes_and_no_client_of_kafkas_can_have_is_said() -> None:
    """A rebalance timeout of 0, which Kafka's coordinator doesn't refuse, of a member that it lets in."""
    entries = read_entries(SAMPLE_LOG)
    client_id = next(entry.client_id for entry in entries if entry.api == "JoinGroup")
    asked = [
        msgspec.structs.replace(entry, request={**entry.request, "rebalanceTimeoutMs": 0})
        if entry.api == "JoinGroup" and entry.client_id == client_id
        else entry
        for entry in entries
    ]
    group = next(one for one in read_groups(asked, {}) if one.group_id == "crash-a")
    said = f"{client_id} asks for max.poll.interval.ms 0, which no client of Kafka's can have; 1 is taken"
    assert said in group.unknown
    taken = {member.client_id: member.properties["max.poll.interval.ms"] for member in group.plan.members}
    assert [name for name, interval_ms in taken.items() if interval_ms == 1] == [client_id]


@pytest.mark.parametrize(
    ("log", "group_id", "said"),
    [
        ("fuzz-consumer", "fuzz-consumer-g0", "requests that don't follow from what it was told"),
        ("storm", "storm-g", None),
    ],
)
def test_what_no_consumer_of_kafkas_does_is_said_and_of_others_nothing(
    log: str, group_id: str, said: str | None
) -> None:
    groups = read_groups(read_entries(shared("broker", "logs-dev") / f"{log}.log.gz"), {})
    group = next(one for one in groups if one.group_id == group_id)
    told = {text for text in group.unknown if "don't follow" in text}
    assert bool(told) == (said is not None)
    assert all(said is not None and said in text for text in told)


def _of_other_members(entry: Entry) -> Entry:
    """One of the sample's requests, as if other members than consumers had sent it."""
    if entry.request.get("groupId") == "crash-a" and entry.api == "JoinGroup":
        return msgspec.structs.replace(entry, request={**entry.request, "protocolType": "connect"})
    if entry.request.get("groupId") == "crash-b" and entry.api == "Heartbeat":
        return msgspec.structs.replace(entry, api="ShareGroupHeartbeat")
    return entry


def test_only_groups_of_consumers_are_simulated() -> None:
    entries = read_entries(SAMPLE_LOG)
    assert {group.group_id for group in read_groups(entries, {})} == {"crash-a", "crash-b"}
    assert not_simulated(entries) == {}
    others = [_of_other_members(entry) for entry in entries]
    assert read_groups(others, {}) == []
    assert [why.partition(",")[0] for _, why in sorted(not_simulated(others).items())] == [
        "its members are Connect's workers (protocol type connect)",
        "it is a share group (KIP-932)",
    ]


def test_who_asked_for_a_group_as_something_else_and_was_refused_makes_no_other_group() -> None:
    entries = [
        msgspec.structs.replace(
            entry, response={**(entry.response or {}), "errorCode": Errors.INCONSISTENT_GROUP_PROTOCOL}
        )
        if entry.api == "JoinGroup"
        else entry
        for entry in map(_of_other_members, read_entries(SAMPLE_LOG))
        if entry.api != "ShareGroupHeartbeat"
    ]
    assert not_simulated(entries) == {}


def test_a_process_loads_its_code_the_first_time() -> None:
    """The leader took 21 ms for its first SyncGroup, and at most 5 for those after it; likewise the others."""
    (group,) = read_groups(read_entries(shared("evidence", "ab") / "dev" / "W2-base.request.log.gz"), {})
    plan = group.plan
    assert (plan.first_assign_delays_ms, plan.assign_delays_ms) == ((19,), (0, 1, 3))
    assert max(plan.sync_delays_ms) < min(plan.first_sync_delays_ms)


def test_a_client_that_hung_is_told_of() -> None:
    groups = read_groups(read_entries(shared("evidence", "dev") / "subscriptions.request.log.gz"), {})
    group = next(one for one in groups if one.group_id == "subscriptions-a")
    (hung,) = [member for member in group.plan.members if member.hangs]
    (hang,) = hung.hangs
    assert 25_000 < hang.length_ms < 35_000
    assert f"why kafkapython-1 (1) sends nothing for {hang.length_ms} ms" in group.unknown


def test_nobody_hangs_while_a_broker_is_away() -> None:
    groups = read_groups(read_entries(shared("evidence", "dev") / "broker-restart.request.log.gz"), {})
    members = [member for group in groups for member in group.plan.members]
    # One gives its membership up by its own clock, and comes back as another.
    assert len(members) == 8
    assert {member.client_id for member in members if member.run == 2} == {"rdkafka-2"}
    assert [member.name for member in members if member.hangs] == []


def test_what_a_killed_broker_lost_is_said() -> None:
    """Its groups were there again without their members, in the midst of their sessions."""
    groups = read_groups(read_entries(shared("broker", "logs-dev") / "broker-restart.log.gz"), {})
    lost = {one.group_id: [text for text in one.unknown if "had lost" in text] for one in groups}
    assert "aiokafka-4, aiokafka-5" in lost["broker-restart2-b"][0]
    assert "java-3, kafkapython-1" in lost["broker-restart2-a"][0]
    # The other one was only stopped, and lost nothing.
    stopped = read_groups(read_entries(shared("evidence", "dev") / "broker-restart.request.log.gz"), {})
    assert not [text for one in stopped for text in one.unknown if "had lost" in text]


def test_a_request_that_waited_for_a_thread_counts_from_its_turn() -> None:
    entries = read_entries(SAMPLE_LOG)
    place = next(place for place, entry in enumerate(entries) if entry.api == "JoinGroup")

    def start_ms(queue_us: int) -> int:
        waited = [*entries[:place], msgspec.structs.replace(entries[place], queue_us=queue_us), *entries[place + 1 :]]
        group = next(one for one in read_groups(waited, {}) if one.group_id == entries[place].request["groupId"])
        member = next(one for one in group.plan.members if one.client_id == entries[place].client_id)
        return group.plan.start_ms + member.start_ms

    assert start_ms(100_000) - start_ms(0) == 100


def _of_crash_a(entries: list[Entry]) -> GroupLog:
    return next(group for group in read_groups(entries, {}) if group.group_id == "crash-a")


def test_a_rebalance_begins_when_the_turn_of_what_set_it_off_has_come() -> None:
    entries = read_entries(SAMPLE_LOG)
    first = _of_crash_a(entries).rebalances[0]
    waited = [
        msgspec.structs.replace(entry, queue_us=entry.queue_us + 5_000) if entry.api == "JoinGroup" else entry
        for entry in entries
    ]
    assert _of_crash_a(waited).rebalances[0].start_ms == pytest.approx(first.start_ms + 5)


def test_a_generation_whose_assignment_is_written_slowly_is_answered_as_late() -> None:
    entries = read_entries(SAMPLE_LOG)
    place = next(
        place
        for place, entry in enumerate(entries)
        if entry.api == "SyncGroup" and entry.request["groupId"] == "crash-a" and entry.request["assignments"]
    )
    generation = entries[place].request["generationId"]
    slow = [
        msgspec.structs.replace(entry, remote_us=entry.remote_us + 200_000)
        if entry.api == "SyncGroup" and entry.request["generationId"] == generation
        else entry
        for entry in entries
    ]

    def late(log: list[Entry]) -> list[int]:
        members = _of_crash_a(log).plan.members
        return [late_ms for member in members for api, _, late_ms in member.answered_late_ms if api == "SyncGroup"]

    assert late(entries) == []
    assert late(slow)
    assert all(150 < late_ms < 300 for late_ms in late(slow))


def test_partitions_that_a_topic_gains_are_counted_from_then_on() -> None:
    """A topic of two partitions that gets three more after 14 s; members learn of them within some seconds."""
    groups = read_groups(read_entries(shared("evidence", "dev") / "subscriptions.request.log.gz"), {})
    group = next(one for one in groups if one.group_id == "subscriptions-b")
    grown_ms = next(topic.at_ms for topic in group.plan.topics if topic.partitions == 5)
    assert [born_ms - group.plan.start_ms for born_ms in group.partitions.values()][2:] == [grown_ms] * 3
    whole = compare(group, Change(), range(1), (group.plan.start_ms, None)).base_details.unowned_s
    since = compare(group, Change(), range(1), (group.plan.start_ms + grown_ms, None)).base_details.unowned_s
    assert [whole[f"subscriptions-t-{number}"] for number in (2, 3, 4)] == [
        since[f"subscriptions-t-{number}"] for number in (2, 3, 4)
    ]


@pytest.mark.parametrize(
    ("told", "bounds"),
    [({}, (10_000, 60_000)), ({"session": "12000"}, (12_000, 60_000)), ({"session": "90000"}, (45_000, 90_000))],
)
def test_a_session_timeout_that_is_told_is_not_guessed(told: dict[str, str], bounds: tuple[int, int]) -> None:
    """And its coordinator has begun with it, so its bounds let it."""
    entries = read_entries(shared("evidence", "ab") / "dev" / "W2-consumer.request.log.gz")
    session = "group.consumer{}.session.timeout.ms"
    (group,) = read_groups(entries, {session.format(""): value for value in told.values()})
    read = Settings.from_kafka(group.plan.settings)
    assert read.group_consumer_session_timeout_ms == int(told.get("session", 10_000))
    assert (read.group_consumer_min_session_timeout_ms, read.group_consumer_max_session_timeout_ms) == bounds
    assert any("session timeout" in text for text in group.unknown) == (not told)
