"""Lines of a broker's own log: what they tell, in the words of several versions and layouts."""

from __future__ import annotations

import json
from zoneinfo import ZoneInfo

import pytest

from coordinator_udf.replay.inputs.info_log.events import InfoEvent
from coordinator_udf.replay.inputs.info_log.lines import InfoLine, parse_line
from coordinator_udf.replay.inputs.info_log.reader import read_info_log
from coordinator_udf.replay.inputs.wrapped import unwrap

SHARD = "[GroupCoordinator id=1 topic=__consumer_offsets partition=3]"
LOGGER = "(org.apache.kafka.coordinator.group.GroupMetadataManager)"
DYNAMIC = "app-1-d2fd83f7-434f-42f9-b417-d702b4639a98"
BUMPED = "[GroupId g] Bumped group epoch to 7 with metadata hash -254."


def line(message: str, time: str = "[2026-11-22 06:53:41,527] INFO ") -> InfoLine:
    parsed = parse_line(f"{time}{SHARD} {message} {LOGGER}")
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("message", "event", "told"),
    [
        (BUMPED, InfoEvent.EPOCH_BUMPED, {"group_id": "g", "generation": 7}),
        (
            "[GroupId g] Static member M with instance id i 1 temporarily left the consumer group.",
            InfoEvent.MEMBER_LEFT_FOR_NOW,
            {"member_id": "M", "group_instance_id": "i 1"},
        ),
        (
            "[GroupId g] Member M fenced from the group because it failed to transition from epoch 4 within 300000ms.",
            InfoEvent.REBALANCE_EXPIRED,
            {"member_id": "M"},
        ),
        (
            f"[Group g] Member {DYNAMIC} has left group through explicit `LeaveGroup` request; client reason: bye",
            InfoEvent.MEMBER_LEFT,
            {"member_id": DYNAMIC, "client_id": "app-1", "client_reason": "bye"},
        ),
        (
            f"Group g removed dynamic members who haven't joined: [{DYNAMIC}, x]",
            InfoEvent.MEMBERS_NOT_REJOINED,
            {"members": (DYNAMIC, "x")},
        ),
        ("Something that no version of Kafka writes.", None, {"group_id": None}),
    ],
)
def test_a_line_of_the_coordinator_tells(message: str, event: InfoEvent | None, told: dict[str, object]) -> None:
    parsed = line(message)
    assert (parsed.event, parsed.broker, parsed.partition, parsed.ts) == (event, 1, 3, 1_795_330_421_527)
    assert {name: getattr(parsed, name) for name in told} == told
    assert parsed.message == message


OLD = """
[2024-03-05 10:00:00,001] INFO [GroupCoordinator 2]: Dynamic member with unknown member id joins group g in Empty state. Created a new member id a-11111111-2222-3333-4444-555555555555 and request the member to rejoin with this id. (kafka.coordinator.group.GroupCoordinator)
[2024-03-05 10:00:00,002] INFO [GroupCoordinator 2]: Preparing to rebalance group g in state PreparingRebalance with old generation 0 (__consumer_offsets-38) (reason: Adding new member a-11111111-2222-3333-4444-555555555555 with group instance id None; client reason: not provided) (kafka.coordinator.group.GroupCoordinator)
[2024-03-05 10:00:03,004] INFO [GroupCoordinator 2]: Stabilized group g generation 1 (__consumer_offsets-38) with 1 members (kafka.coordinator.group.GroupCoordinator)
[2024-03-05 10:00:03,010] INFO [GroupCoordinator 2]: Assignment received from leader a-11111111-2222-3333-4444-555555555555 for group g for generation 1. The group has 1 members, 0 of which are static. (kafka.coordinator.group.GroupCoordinator)
[2024-03-05 10:01:00,000] INFO [GroupCoordinator 2]: Member MemberMetadata(memberId=a-11111111-2222-3333-4444-555555555555, groupInstanceId=None, clientId=a, clientHost=/10.0.0.1, sessionTimeoutMs=45000, rebalanceTimeoutMs=300000, supportedProtocols=List(range)) has left group g through explicit `LeaveGroup`; client reason: the consumer is being closed (kafka.coordinator.group.GroupCoordinator)
[2024-03-05 10:01:00,001] INFO [GroupCoordinator 2]: Preparing to rebalance group g in state PreparingRebalance with old generation 1 (__consumer_offsets-38) (reason: explicit `LeaveGroup` request for (a-11111111-2222-3333-4444-555555555555) members.) (kafka.coordinator.group.GroupCoordinator)
[2024-03-05 10:01:00,002] INFO [GroupCoordinator 2]: Group g with generation 2 is now empty (__consumer_offsets-38) (kafka.coordinator.group.GroupCoordinator)
[2024-03-05 10:01:01,000] INFO [TransactionCoordinator id=2] Starting up. (kafka.coordinator.transaction.TransactionCoordinator)
"""  # noqa: E501 - lines as Kafka 3.x writes them


def test_the_older_coordinators_lines_are_read_too() -> None:
    log = read_info_log(OLD.strip().splitlines())
    assert log.events["unknown"] == 0
    assert log.others == 1
    states = [row["to_state"] for row in log.transitions if row["from_state"] != row["to_state"]]
    assert states == ["PreparingRebalance", "CompletingRebalance", "Stable", "PreparingRebalance", "Empty"]
    left = next(row for row in log.transitions if row["rule"] == "MEMBER_LEFT")
    assert (left["cause_client_id"], left["cause_client_host"]) == ("a", "/10.0.0.1")


def test_unknown_lines_are_counted_and_kept() -> None:
    log = read_info_log([f"[2026-11-22 06:53:41,527] INFO {SHARD} News of [GroupId g]. {LOGGER}", "\tat a.b.C(D.java)"])
    assert (log.events["unknown"], log.others, log.transitions) == (1, 1, [])
    assert log.lines[0]["message"] == "News of [GroupId g]."


TEXT = f"{SHARD} {BUMPED} {LOGGER}"


@pytest.mark.parametrize(
    "text",
    [
        f"2026-11-22T06:53:41.527Z INFO {TEXT}",
        f"2026-11-22 07:53:41,527+01:00 INFO {TEXT}",
        f"22 Nov 2026 06:53:41,527 INFO [main] o.a.k.c.g.GroupMetadataManager - {TEXT}",
        f"2026-11-22T09:00:00.123456789Z stdout F [2026-11-22 06:53:41,527] INFO {TEXT}",
        f"Nov 22 09:00:00 host kafka[77]: [2026-11-22 06:53:41,527] INFO {TEXT}",
        json.dumps(
            {"log": f"[2026-11-22 06:53:41,527] INFO {TEXT}\n", "stream": "stdout", "time": "2026-11-22T09:00:00Z"}
        ),
        json.dumps({"@timestamp": "2026-11-22T06:53:41.527Z", "level": "INFO", "message": TEXT}),
        json.dumps({"MESSAGE": f"INFO {TEXT}", "__REALTIME_TIMESTAMP": "1795330421527000"}),
    ],
)
def test_a_line_is_the_same_in_every_layout_and_wrapping(text: str) -> None:
    assert parse_line(unwrap(text)) == line(BUMPED)


def test_a_time_without_a_zone_is_in_the_zone_that_is_said() -> None:
    parsed = parse_line(f"[2026-11-22 07:53:41,527] INFO {TEXT}", ZoneInfo("Europe/Berlin"))
    assert parsed == line(BUMPED)


def test_a_line_of_the_coordinator_without_a_time_is_said() -> None:
    log = read_info_log([f"INFO {TEXT}"])
    assert log.lines == []
    assert "it has no time" in log.unreadable[0][0]
