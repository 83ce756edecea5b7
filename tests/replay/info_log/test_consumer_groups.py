"""Lines of consumer groups (KIP-848), as Kafka 4.3.1 writes them."""

from __future__ import annotations

from coordinator_udf.replay.inputs.info_log.reader import read_info_log

SHARD = "[GroupCoordinator id=1 topic=__consumer_offsets partition=3] [GroupId g]"
LOGGER = "(org.apache.kafka.coordinator.group.GroupMetadataManager)"
JOINS = "joins the consumer group using the consumer protocol."


def test_who_joins_again_without_having_gone_is_no_new_member() -> None:
    lines = (f"Member m {JOINS}", "Bumped group epoch to 2 with metadata hash 5.", f"Member m {JOINS}",
             "Bumped group epoch to 3 with metadata hash 7.", "Member m left the consumer group.",
             "Bumped group epoch to 4 with metadata hash 0.", f"Member m {JOINS}",
             "Bumped group epoch to 5 with metadata hash 7.")  # fmt: skip
    rows = read_info_log(
        f"[2026-11-22 06:53:41,{number:03}] INFO {SHARD} {line} {LOGGER}" for number, line in enumerate(lines)
    ).transitions
    epochs = [(row["generation"], row["rule"]) for row in rows if row.get("members") is not None]
    assert epochs == [(2, "MEMBER_ADDED"), (3, "MEMBER_UPDATED"), (4, "MEMBER_LEFT"), (5, "MEMBER_ADDED")]
    assert [row["rule"] for row in rows if row.get("members") is None] == [
        "MEMBER_ADDED",
        "MEMBER_LEFT",
        "MEMBER_ADDED",
    ]
