"""Static members that came back, whose new ids only later lines tell."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from coordinator_udf.replay.inputs.info_log.reader import InfoLog, read_info_log

CLASS = "(org.apache.kafka.coordinator.group.GroupMetadataManager)"
OLD = "i1-11111111-2222-3333-4444-555555555555"
NEW = "i1-99999999-2222-3333-4444-555555555555"
NEWEST = "i1-00000000-2222-3333-4444-555555555555"

JOINED = (
    "Static member with groupInstanceId=i1 and unknown member id joins group g in Empty state. Created a new member id "
    f"{OLD} for this member and added to the group."
)
STABLE = "Stabilized group g generation 1 with 1 members."
FENCED = (
    f"Request memberId={OLD} for static member with groupInstanceId=i1 is fenced by existing memberId={NEW} during "
    "operation heartbeat"
)
FAILED = f"Member {NEW} in group g has failed, removing it from the group."
ELSEWHERE = f"Member {NEW} in group h has failed, removing it from the group."
DYNAMIC = (
    f"Dynamic member with unknown member id joins group g in Stable state. Created a new member id {NEWEST} and "
    "requesting the member to rejoin with this id."
)


def back(before: str) -> str:
    return (
        "Static member with groupInstanceId=i1 and unknown member id joins group g in Stable state. Replacing "
        f"previously mapped member {before} with this groupInstanceId."
    )


def read(*messages: str) -> InfoLog:
    shard = "[GroupCoordinator id=1 topic=__consumer_offsets partition=2]"
    return read_info_log(
        f"[2026-11-22 10:00:{n:02},000] INFO {shard} {text} {CLASS}" for n, text in enumerate(messages)
    )


@pytest.mark.parametrize(
    ("later", "members"),
    [
        ((FAILED,), [NEW]),
        ((FENCED,), [NEW]),
        ((DYNAMIC, f"[Group g] Pending member {NEWEST} has left group through x", FAILED), [NEW]),
        ((back(NEW), FAILED.replace(NEW, NEWEST)), [NEW, NEWEST]),
        ((FENCED, back(NEW), FAILED.replace(NEW, NEWEST)), [NEW, NEWEST]),
        ((ELSEWHERE,), [None]),
        ((), [None]),
    ],
)
def test_who_came_back_is_told_by_later_lines(later: tuple[str, ...], members: list[str | None]) -> None:
    log = read(JOINED, STABLE, back(OLD), *later)
    assert [row["cause_member_id"] for row in came_back(log)] == members
    # What the line itself says stays.
    assert [line["member_id"] for line in log.lines if line["event"] == "STATIC_MEMBER_REPLACED"] == [None] * len(
        members
    )


def came_back(log: InfoLog) -> list[Mapping[str, object]]:
    return [row for row in log.transitions if row["rule"] == "STATIC_MEMBER_REPLACED"]


def test_the_members_of_the_next_rebalance_are_known() -> None:
    log = read(
        JOINED, STABLE, back(OLD), "Preparing to rebalance group g in state PreparingRebalance with old generation 1 "
        f"(reason: Updating metadata for member {NEW} during Stable; client reason: none).",
    )  # fmt: skip
    assert log.transitions[-1]["members"] == [NEW]
