"""What-if from logs of real runs: under the settings as they were each log's own run comes out of it again."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.what_if.change import Change
from coordinator_udf.simulation.what_if.comparison import compare
from coordinator_udf.simulation.what_if.group_log import GroupLog, read_groups
from coordinator_udf.simulation.what_if.log_entries import read_entries
from coordinator_udf.simulation.what_if.pairing import paired
from coordinator_udf.simulation.what_if.rebalances import (
    MEMBER_ADDED,
    MEMBER_LEFT,
    SESSION_EXPIRED,
    TOPICS_CHANGED,
    Rebalance,
)
from coordinator_udf.simulation.world import World
from tests.conftest import SAMPLE_LOG, shared


def _happens_again(group: GroupLog) -> None:
    """Each rebalance of the log and no other, by the same trigger, and as long to a tenth or 100 ms."""
    calibration = compare(group, Change(), range(1), (None, None)).calibration
    assert calibration.matched == calibration.simulated == calibration.recorded == len(group.rebalances)
    for recorded, simulated in calibration.pairs:
        assert recorded is not None
        assert simulated is not None
        assert recorded.trigger == simulated.trigger
        assert abs(recorded.duration_ms - simulated.duration_ms) <= max(100, recorded.duration_ms / 10)


@pytest.mark.parametrize(
    "run",
    [
        "dev/W1-base", "dev/W1-cooperative", "dev/W1-delay0", "dev/W2-session30", "dev/W2-consumer",
        "dev/W2-static", "dev/W3-consumer", "dev/W3-static",
        "dev-repeat/W1-base", "dev-repeat/W1-consumer",
    ],
)  # fmt: skip
def test_a_log_of_any_settings_happens_again(run: str) -> None:
    (group,) = read_groups(read_entries(shared("evidence", "ab") / f"{run}.request.log.gz"), {})
    _happens_again(group)


@pytest.mark.parametrize(
    ("log", "group_id"),
    [
        ("evidence/dev/migrate.request.log.gz", "migrate-g"),  # One is refused, for another's userData.
        ("evidence/dev/max-poll.request.log.gz", "max-poll-g"),  # A LeaveGroup ends one rebalance and begins none.
        ("evidence/dev/subscriptions.request.log.gz", "subscriptions-b"),  # The leader sees that its topic grew.
        ("evidence/dev/kip848.request.log.gz", "kip848-b"),  # A static member is killed, and its successor refused.
        ("broker/logs-dev/migrate.log.gz", "migrate-g"),  # Members give partitions up between others' SyncGroups.
        ("broker/logs-dev/txn.log.gz", "txn-a"),  # One closes that was told to join again.
        ("broker/logs-dev/broker-restart.log.gz", "broker-restart2-a"),  # Its coordinator is lost, and stays so.
    ],
)
def test_the_same_rebalances_happen_again(log: str, group_id: str) -> None:
    room, folder, name = log.split("/")
    groups = read_groups(read_entries(shared(room, folder) / name), {})
    group = next(one for one in groups if one.group_id == group_id)
    calibration = compare(group, Change(), range(1), (None, None)).calibration
    assert calibration.recorded == calibration.simulated == calibration.matched


@pytest.mark.parametrize(
    ("log", "group_id"),
    [
        ("evidence/dev/subscriptions.request.log.gz", "subscriptions-a"),  # One hangs for 31 s, and others wait for it.
        ("broker/logs-dev/subscriptions.log.gz", "subscriptions-a"),  # And here for longer than a request may take.
        ("evidence/dev/kip848.request.log.gz", "kip848-a"),  # The coordinator takes 160 ms for the first heartbeat.
        ("evidence/dev/crash.request.log.gz", "crash-a"),  # One is killed after two commits.
        ("broker/logs-dev/storm.log.gz", "storm-g"),  # A request for an id, and the one with it, at the same time.
        ("broker/logs-dev/limits.log.gz", "limits2-a"),  # One is refused for 16 s: group.max.size is in force.
        ("broker/logs-dev/subscriptions.log.gz", "subscriptions-b"),  # librdkafka's member joins again as no leader.
    ],
)
def test_the_same_rebalances_take_as_long_again(log: str, group_id: str) -> None:
    room, folder, name = log.split("/")
    groups = read_groups(read_entries(shared(room, folder) / name), {})
    _happens_again(next(one for one in groups if one.group_id == group_id))


def test_a_process_that_closes_leaves_when_it_did() -> None:
    """Some 10 ms after its commit: who sends a heartbeat in between hears of it only with the next one."""
    (group,) = read_groups(read_entries(shared("evidence", "ab") / "dev" / "W1-delay0.request.log.gz"), {})
    history = World(replace(group.plan, keeps_requests=True), 0).run()
    left_ms = [one.arrived_ms for one in history.answered if one.api == "LeaveGroup"]
    known_ms = [went for member in group.plan.members for api, _, went in member.sent_ms if api == "LeaveGroup"]
    arrives_ms = [group.plan.start_ms + time + group.plan.network.latency_ms[0] for time in sorted(known_ms)]
    assert len(left_ms) == len(arrives_ms) == 10
    assert max(abs(one - other) for one, other in zip(sorted(left_ms), arrives_ms, strict=True)) <= 3


def _moved(entry: Entry, **times_us: int) -> Entry:
    return msgspec.structs.replace(entry, **{name: getattr(entry, name) + by_us for name, by_us in times_us.items()})


def test_a_subscription_that_is_told_at_once_is_told_then() -> None:
    """As librdkafka's members of KIP-848 do: here the one that tells it in the log does so 3.9 s before it is due."""
    entries = read_entries(shared("evidence", "dev") / "kip848.request.log.gz")
    subscribed: dict[str, list[str]] = {}
    for place, entry in enumerate(entries):
        names = entry.request.get("subscribedTopicNames")
        if entry.request.get("groupId") == "kip848-a" and names:
            member_id = entry.request["memberId"]
            if subscribed.setdefault(member_id, names) != names:
                entries[place] = _moved(entry, written_us=-3_900_000)
                told_us = entries[place].arrived_us
    group = next(one for one in read_groups(entries, {}) if one.group_id == "kip848-a")
    history = World(replace(group.plan, keeps_requests=True), 0).run()
    (told_ms,) = [
        one.arrived_ms
        for one in history.answered
        if one.api == "ConsumerGroupHeartbeat"
        and one.request.get("subscribedTopicNames")
        and one.request["memberEpoch"]
    ]
    assert abs(told_ms - told_us / 1000) <= 5


def test_a_restarted_broker_is_restarted_again_and_each_client_comes_back_when_it_did() -> None:
    """Stopped for 7 s and killed for 16 s: sessions begin anew, who is late loses its own, and one starts over."""
    groups = read_groups(read_entries(shared("evidence", "dev") / "broker-restart.request.log.gz"), {})
    for group in groups:
        assert len(group.plan.failovers) == 2
        _happens_again(group)
    kafka_python = next(one for group in groups for one in group.plan.members if one.client_id == "kafkapython-1")
    assert [13_000 < one.length_ms < 15_000 or 26_000 < one.length_ms < 28_000 for one in kafka_python.refusals] == [
        True,
        True,
    ]


def test_members_that_an_administrator_removed_are_removed_again() -> None:
    (group,) = read_groups(read_entries(shared("evidence", "dev") / "static-restart.request.log.gz"), {})
    assert [removal.process for removal in group.plan.removals] == ["restarted-1/1", "duplicate-2/1"]
    assert [one.trigger for one in group.rebalances].count("MEMBER_LEFT") == 1
    _happens_again(group)


def test_a_pattern_that_the_coordinator_matches_is_subscribed_to_again() -> None:
    groups = read_groups(read_entries(shared("broker", "logs-dev") / "kip848.log.gz"), {})
    group = next(one for one in groups if one.group_id == "kip848-b")
    assert {member.regex for member in group.plan.members} - {None} != set()
    _happens_again(group)


def test_an_epoch_for_which_a_topic_grew_isnt_taken_for_an_expiry() -> None:
    groups = read_groups(read_entries(shared("evidence", "dev") / "kip848.request.log.gz"), {})
    group = next(one for one in groups if one.group_id == "kip848-a")
    # The broker's own log tells of these epochs: four join, the topic has two partitions more, one expires, one leaves.
    triggers = [MEMBER_ADDED] * 4 + [TOPICS_CHANGED, SESSION_EXPIRED, MEMBER_LEFT]
    assert [one.trigger for one in group.rebalances] == triggers
    pairs = compare(group, Change(), range(1), (None, None)).calibration.pairs
    assert [simulated and simulated.trigger for _, simulated in pairs] == triggers


def _with_pattern(regex: str) -> list[Entry]:
    """A log's requests, but that a member has another pattern."""
    return [
        msgspec.structs.replace(entry, request={**entry.request, "subscribedTopicRegex": regex})
        if entry.request.get("subscribedTopicRegex")
        else entry
        for entry in read_entries(shared("broker", "logs-dev") / "kip848.log.gz")
    ]


def test_a_pattern_that_is_none_is_refused_again() -> None:
    group = next(one for one in read_groups(_with_pattern("(t"), {}) if one.group_id == "kip848-b")
    assert "(t" in {member.regex for member in group.plan.members}
    calibration = compare(group, Change(protocol="classic"), range(1), (None, None)).calibration
    assert 0 < calibration.simulated < calibration.recorded


def test_a_log_of_many_kinds_of_clients_happens_again() -> None:
    for group in read_groups(read_entries(SAMPLE_LOG), {}):
        _happens_again(group)


def test_of_rebalances_within_a_second_each_has_the_one_that_is_nearest() -> None:
    recorded = [Rebalance(1, MEMBER_ADDED, 17_668, 17_672), Rebalance(2, MEMBER_ADDED, 17_757, 18_155)]
    simulated = [Rebalance(1, MEMBER_ADDED, 17_403, 17_405), Rebalance(2, MEMBER_ADDED, 17_758, 18_154)]
    assert paired(recorded, simulated) == list(zip(recorded, simulated, strict=True))


def test_a_static_member_that_comes_back_is_none_of_a_rebalance() -> None:
    entries = read_entries(shared("evidence", "dev", "static-restart.request.log.gz"))
    (group,) = read_groups(entries, {})
    # As the broker's own log has them: 6.0 s from 06:52:43.572, 1.0 s from 06:53:13.725, 0.1 s from 18.690 and 35.805.
    told = [(round(one.start_ms / 1000 % 60, 1), round(one.duration_ms / 1000, 1)) for one in group.rebalances]
    assert told == [(43.6, 6.0), (13.7, 1.0), (18.7, 0.1), (35.8, 0.1)]
