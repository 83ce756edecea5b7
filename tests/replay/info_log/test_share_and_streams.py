"""Lines of share groups (KIP-932) and of Streams groups (KIP-1071), which are no consumer groups."""

from __future__ import annotations

from coordinator_udf.replay.inputs.info_log.reader import InfoLog, read_info_log

SHARD = "[GroupCoordinator id=1 topic=__consumer_offsets partition=3]"
LOGGER = "(org.apache.kafka.coordinator.group.GroupMetadataManager)"
STREAMS = "[GroupId st][MemberId a]"
#: As Kafka 4.3.1 writes them.
LINES = (
    "[GroupId sh] Member m joins the share group using the share protocol.",
    "[GroupId sh] Computed new metadata hash: 55.",
    "[GroupId sh] Bumped group epoch to 2 with metadata hash 55.",
    "[GroupId sh] Computed a new target assignment for epoch 2 with 'simple' assignor in 1ms.",
    f"{STREAMS} Member joins the streams group.",
    f"{STREAMS} Member initialized the topology with epoch 1",
    f"{STREAMS} Computed new metadata hash: 5.",
    f"{STREAMS} Configuring the topology 1",
    f"{STREAMS} Valid topic configuration found in 3ms, topology epoch 1 is now initialized.",
    f"{STREAMS} Bumped streams group epoch to 2 with metadata hash 5 and validated topic epoch 1.",
    "[GroupId st] Computed a new target assignment for epoch 2 with 'sticky' assignor in 3ms.",
    f"{STREAMS} Member's new assignment state: epoch=2, previousEpoch=0, assignedTasks=x and tasksPendingRevocation=y.",
    "[GroupId sh] Member m fenced from the group because the member session expired.",
    "[GroupId st] Streams member a fenced from the group because the member session expired..",
    f"{STREAMS} Member a left the streams group.",
    "[GroupId sh] Member m left the share group.",
    f"{STREAMS} Shutdown requested for the streams application.",
    f"{STREAMS} Assignment configurations changed to {{x=1}}. Triggering rebalance.",
    "[GroupId st] Skipping delayed target assignment: group is empty",
    "Existing deleting entries found in share group sh - [x]",
)
UNTOLD = "[GroupId other] Bumped group epoch to 7 with metadata hash 1."


def log(*messages: str) -> InfoLog:
    return read_info_log(
        f"[2026-11-22 06:53:41,{number:03}] INFO {SHARD} {message} {LOGGER}" for number, message in enumerate(messages)
    )


def test_each_line_has_a_shape_and_its_group() -> None:
    read = log(*LINES)
    assert read.events["unknown"] == 0
    assert read.groups == {"sh", "st"}


def test_epochs_and_members_are_those_of_the_groups_kind() -> None:
    rows = log(*LINES, UNTOLD).transitions
    told = [(row["group_id"], row["protocol_type"], row["rule"], row["cause_member_id"])
            for row in rows if row["rule"] != "TARGET_COMPUTED"]  # fmt: skip
    assert told == [
        ("sh", "share", "MEMBER_ADDED", "m"),
        ("sh", "share", "MEMBER_ADDED", "m"),
        ("st", "streams", "MEMBER_ADDED", "a"),
        ("st", "streams", "MEMBER_ADDED", "a"),
        ("sh", "share", "SESSION_EXPIRED", "m"),
        ("st", "streams", "SESSION_EXPIRED", "a"),
        ("st", "streams", "MEMBER_LEFT", "a"),
        ("sh", "share", "MEMBER_LEFT", "m"),
        # No line says of which kind this group is.
        ("other", None, "EPOCH_BUMPED", None),
    ]


def test_what_later_lines_tell_of_a_group_counts_from_its_beginning() -> None:
    rows = log("[GroupId sh] Bumped group epoch to 2 with metadata hash 5.", *LINES).transitions
    assert {row["protocol_type"] for row in rows if row["group_id"] == "sh"} == {"share"}
