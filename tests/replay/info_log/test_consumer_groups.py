"""Lines of consumer groups (KIP-848), as Kafka 4.3.1 writes them."""

from __future__ import annotations

import pytest

from coordinator_udf.replay.inputs.info_log.lines import reason_members
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


def test_before_4_0_an_epoch_may_begin_without_a_line_that_says_so() -> None:
    """A member that goes is no expulsion then, and the epoch is none the less one."""
    lines = ("Bumped group epoch to 5.", "Computed a new target assignment for epoch 5 with 'uniform' assignor in 1ms.",
             "Member m left the consumer group.",
             "Computed a new target assignment for epoch 6 with 'uniform' assignor in 1ms.")  # fmt: skip
    rows = read_info_log(
        f"[2026-11-22 06:53:41,{number:03}] INFO {SHARD} {line} {LOGGER}" for number, line in enumerate(lines)
    ).transitions
    assert (6, "MEMBER_LEFT") in [(row["generation"], row["rule"]) for row in rows]
    computed = [row for row in rows if row["rule"] == "TARGET_COMPUTED"]
    assert [row["generation"] for row in computed] == [5, 6]
    assert not any(row["from_state"] == row["to_state"] and row.get("members") is None for row in computed)


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("ListingService-1-0a1b2c3d4e5f", ("ListingService-1-0a1b2c3d4e5f",)),
        ("Set(a,b-1-0a1b2c3d4e5f, c-2-0a1b2c3d4e5f)", ("a,b-1-0a1b2c3d4e5f", "c-2-0a1b2c3d4e5f")),
        ("[a-1-0a1b2c3d4e5f, b-2-0a1b2c3d4e5f]", ("a-1-0a1b2c3d4e5f", "b-2-0a1b2c3d4e5f")),
        ("a-1-0a1b2c3d4e5f,b-2-0a1b2c3d4e5f", ("a-1-0a1b2c3d4e5f", "b-2-0a1b2c3d4e5f")),
    ],
)
def test_members_of_a_list_keep_their_names(text: str, members: tuple[str, ...]) -> None:
    assert reason_members(f"explicit `LeaveGroup` request for ({text}) members.") == members
