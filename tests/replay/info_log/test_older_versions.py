"""Lines as the older coordinator wrote them, version by version, with other names and addresses."""

from __future__ import annotations

import pytest

from coordinator_udf.replay.inputs.info_log.events import InfoEvent
from coordinator_udf.replay.inputs.info_log.reader import InfoLog, read_info_log

A = "a-11111111-2222-3333-4444-555555555555"
B = "b-99999999-2222-3333-4444-555555555555"
WHERE = "(__consumer_offsets-7)"
PREPARING = "Preparing to rebalance group g in state PreparingRebalance with old generation"
CLASS = "(kafka.coordinator.group.GroupCoordinator)"


def read(messages: list[str], logger: str = CLASS, context: str = "[GroupCoordinator 0]: ") -> InfoLog:
    log = read_info_log(
        f"[2021-03-05 10:00:{n:02},000] INFO {context}{message} {logger}" for n, message in enumerate(messages)
    )
    assert [line["message"] for line in log.lines if line["event"] is None] == []
    assert [line["message"] for line in log.lines] == messages
    return log


def changes(log: InfoLog) -> list[tuple[str, str, int, list[str] | None]]:
    """(to, rule, generation, members) of the changes of state."""
    return [
        (row["to_state"], row["rule"], row["generation"], row["members"])
        for row in log.transitions
        if row["from_state"] != row["to_state"]
    ]


def causes(log: InfoLog) -> list[tuple[str, str | None]]:
    return [
        (row["rule"], row["cause_client_id"])
        for row in log.transitions
        if row["to_state"] == "PreparingRebalance" != row["from_state"]
    ]


def test_0_10_and_0_11() -> None:
    log = read(
        [
            "Preparing to restabilize group g with old generation 0",
            "Stabilized group g generation 1",
            "Assignment received from leader for group g for generation 1",
            "Preparing to restabilize group g with old generation 1",
            "Group g with generation 2 is now empty",
            "Group g transitioned to Dead in generation 2",
        ],
        "(kafka.coordinator.GroupCoordinator)",
    )
    assert [(state, generation) for state, _, generation, _ in changes(log)] == [
        ("PreparingRebalance", 0), ("CompletingRebalance", 1), ("Stable", 1), ("PreparingRebalance", 1), ("Empty", 2),
        ("Dead", 2),
    ]  # fmt: skip
    assert all(members is None for *_, members in changes(log)[:-2])


def test_2_0_names_members_that_failed_or_left() -> None:
    log = read(
        [
            f"Member {A} in group g has failed, removing it from the group",
            f"{PREPARING} 1 {WHERE} (reason: removing member {A} on heartbeat expiration)",
            "Stabilized group g generation 2 (__consumer_offsets-43)",
            f"Member {B} in group g has left, removing it from the group",
            f"{PREPARING} 2 {WHERE} (reason: removing member {B} on LeaveGroup)",
            "Group g with generation 3 is now empty (__consumer_offsets-43)",
        ]
    )
    assert [row["rule"] for row in log.transitions] == [
        "SESSION_EXPIRED", "SESSION_EXPIRED", "JOIN_PHASE_ENDED", "MEMBER_LEFT", "MEMBER_LEFT", "EMPTIED",
    ]  # fmt: skip
    assert causes(log) == [("SESSION_EXPIRED", "a"), ("MEMBER_LEFT", "b")]


def test_2_3_has_no_line_for_who_joins_and_names_nobody_else() -> None:
    log = read(
        [
            "Group g with generation 13 is now empty (__consumer_offsets-7)",
            f"{PREPARING} 13 {WHERE} (reason: Adding new member {A} with group instanceid None)",
            "Stabilized group g generation 14 (__consumer_offsets-7)",
            "Assignment received from leader for group g for generation 14",
            f"{PREPARING} 14 {WHERE} (reason: leader {A} re-joining group during Stable)",
            "Stabilized group g generation 15 (__consumer_offsets-7)",
            f"{PREPARING} 15 {WHERE} (reason: error when storing group assignment during SyncGroup (member: {A}))",
        ]
    )
    assert causes(log) == [("MEMBER_ADDED", "a"), ("LEADER_REJOINED", "a"), ("STORE_FAILED", None)]
    # Others may have joined with it.
    assert [members for *_, members in changes(log)] == [[], [A], None, None, None, None, None]


def test_2_8_writes_who_left_after_the_rebalance_that_it_set_off() -> None:
    log = read(
        [
            (
                f"Dynamic Member with unknown member id joins group g in Empty state. Created a new member id {A} for "
                "this member and add to the group."
            ),
            f"{PREPARING} 0 {WHERE} (reason: Adding new member {A} with group instance id None)",
            (
                "Dynamic Member with unknown member id joins group g in PreparingRebalance state. Created a new member "
                f"id {B} for this member and add to the group."
            ),
            "Stabilized group g generation 1 (__consumer_offsets-46) with 2 members",
            (
                f"Assignment received from leader {A} for group g for generation 1. The group has 2 members, 0 of "
                "which are static."
            ),
            f"{PREPARING} 1 {WHERE} (reason: Removing member {A} on LeaveGroup)",
            (
                f"Member MemberMetadata(memberId={A}, groupInstanceId=None, clientId=a, clientHost=/10.0.0.1, "
                "sessionTimeoutMs=45000, rebalanceTimeoutMs=60000, supportedProtocols=List(range, cooperative-sticky)) "
                "has left group g through explicit `LeaveGroup` request"
            ),
            "Stabilized group g generation 2 (__consumer_offsets-46) with 1 members",
            (
                f"Assignment received from leader {B} for group g for generation 2. The group has 1 members, 0 of "
                "which are static."
            ),
        ]
    )
    assert causes(log) == [("MEMBER_ADDED", "a"), ("MEMBER_LEFT", "a")]
    assert [members for *_, members in changes(log)] == [[A], [A, B], [A, B], [B], [B], [B]]


def test_a_member_that_left_before_static_ids_had_a_place_of_their_own() -> None:
    log = read([f"Member[group.instance.id None, member.id {A}] in group g has left, removing it from the group"])
    assert (log.lines[0]["member_id"], log.lines[0]["client_id"]) == (A, "a")
    assert log.lines[0]["group_instance_id"] is None


@pytest.mark.parametrize(
    ("message", "event", "told"),
    [
        (  # 2.3
            (
                f"Static member Some(i1) with unknown member id rejoins, assigning new member id {B}, while old member "
                f"{A} will be removed."
            ),
            InfoEvent.STATIC_MEMBER_REPLACED,
            {"group_instance_id": "i1", "member_id": B, "old_member_id": A},
        ),
        (  # 2.5
            (
                f"Static member Some(i1) of group g with unknown member id rejoins, assigning new member id {B}, while "
                f"old member id {A} will be removed."
            ),
            InfoEvent.STATIC_MEMBER_REPLACED,
            {"group_id": "g", "group_instance_id": "i1", "member_id": B, "old_member_id": A},
        ),
        (  # 3.0
            f"Pending member with memberId={A} has left group g through explicit `LeaveGroup` request",
            InfoEvent.PENDING_MEMBER_LEFT,
            {"group_id": "g", "member_id": A},
        ),
        (  # 3.0
            (
                f"Request memberId={A} for static member with groupInstanceId=i1 is fenced by current memberId={B} "
                "during operation heartbeat"
            ),
            InfoEvent.INSTANCE_FENCED,
            {"member_id": A, "old_member_id": B, "group_instance_id": "i1"},
        ),
        (  # 3.8, new coordinator
            "[GroupId g] Static Member M with instance id i1 temporarily left the consumer group.",
            InfoEvent.MEMBER_LEFT_FOR_NOW,
            {"group_id": "g", "member_id": "M", "group_instance_id": "i1"},
        ),
        (  # 3.7, new coordinator
            "[GroupId g] Member M fenced from the group because its session expired.",
            InfoEvent.SESSION_EXPIRED,
            {"group_id": "g", "member_id": "M"},
        ),
        (  # 3.7 to 4.3, of clients that don't ask for an id first
            (
                "Dynamic member with unknown member id joins group g in state Stable. Created a new member id "
                f"{A} and added the member to the group."
            ),
            InfoEvent.MEMBER_JOINED,
            {"group_id": "g", "member_id": A, "state": "Stable"},
        ),
    ],
)
def test_what_other_releases_say(message: str, event: InfoEvent, told: dict[str, object]) -> None:
    (line,) = read([message]).lines
    assert (line["event"], {name: line[name] for name in told}) == (event, told)


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        ("2023-10-05 15:07:33,882 INFO ", f" {CLASS} [executor-Heartbeat]"),
        ("2021-05-04T16:41:31.006683114Z 2023-10-05 15:07:33,882 INFO ", f" {CLASS} [executor-Heartbeat]"),
        ("kafka_1  | [2023-10-05 15:07:33,882] INFO ", f" {CLASS}"),
        ("[2023-10-05 15:07:33,882] INFO ", " (k.c.g.GroupCoordinator:66)"),
        ("\x1b[33m2023-10-05 15:07:33,882 INFO\x1b[m ", f" {CLASS}\x1b[m"),
        ("2023-10-05 15:07:33.882  INFO 3880 --- [quest-handler-3] kafka.coordinator.GroupCoordinator       : ", ""),
        ("[2023-10-05 15:07:33,882] INFO ", f" {CLASS}\r"),
    ],
)
def test_the_layouts_of_operators_images_and_frameworks(head: str, tail: str) -> None:
    message = f"Member client of two-{A} in group g has failed, removing it from the group"
    (line,) = read_info_log([f"{head}[GroupCoordinator 3]: {message}{tail}"]).lines
    assert (line["message"], line["event"], line["ts"]) == (message, "SESSION_EXPIRED", 1_696_518_453_882)
    assert line["member_id"] == f"client of two-{A}"
