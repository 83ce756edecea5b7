"""What `topic_changes` tells of one list of topics after the other, and `rebalances` of what it sets off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import views_named
from tests.sql.conftest import write_table


@pytest.mark.parametrize(
    ("before", "after", "what", "reason"),
    [
        (3, 6, "grew", "topic t grew from 3 to 6 partitions"),
        (6, 3, "shrank", "topic t shrank from 6 to 3 partitions"),
        (3, None, "deleted", "topic t deleted"),
        (None, 3, "created", "topic t created"),
    ],
)
def test_a_change_of_a_topic_is_told_for_what_it_is(
    before: int | None, after: int | None, what: str, reason: str, tmp_path: Path
) -> None:
    write_table(tmp_path, "request_log", [
        {"offset": number, "log_ts": 1_000 * number, "api": "TopicMetadata", "body": topics_of(partitions)}
        for number, partitions in enumerate((before, after), 1)
    ])  # fmt: skip
    write_table(tmp_path, "group_transitions", [
        {"group_id": "g", "ts": 900 * (seq + 1), "seq": seq, "from_state": "Stable", "to_state": state, "rule": rule,
         "generation": generation, "members": ["m"]}
        for seq, (state, rule, generation) in enumerate(
            [("Stable", "MEMBER_ADDED", 1), ("Stable", "RECONCILED", 1), ("Assigning", "TOPICS_CHANGED", 2)]
        )
    ])  # fmt: skip
    views = ViewsInProcess(str(tmp_path))
    views.make(views_named("topic_changes rebalances"))
    (change,) = views.ask("SELECT what, partitions_before, partitions FROM topic_changes WHERE topic = 't'")
    assert tuple(change.values()) == (what, before, after)
    (told,) = views.ask("SELECT reason FROM rebalances WHERE trigger = 'TOPICS_CHANGED'")
    assert told["reason"] == reason


def topics_of(partitions: int | None) -> str:
    """A list of topics: one that is always there, and t with so many partitions, if it is there."""
    topics = [{"name": "always", "partitions": 1, "id": "A"}]
    if partitions is not None:
        topics.append({"name": "t", "partitions": partitions, "id": "T"})
    return json.dumps({"topics": topics})
