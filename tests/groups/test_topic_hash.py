"""The hash of a group's topics, against values that Kafka wrote."""

from __future__ import annotations

from coordinator_udf.groups.consumer.topic_hash import metadata_hash
from coordinator_udf.protocol.requests import Topic

TOPICS = {
    "t0": Topic("t0", 4, "qFZ680nJNnGYp7NPSxBNXQ"),
    "t1": Topic("t1", 3, "R6JiIOC9MYajE8jNDnJh-Q"),
    "t2": Topic("t2", 4, "x6PfcPl4OxehQ0UnZbg3uA"),
    "t3": Topic("t3", 1, "lwaySyNbMougjVGdr8KS6g"),
}


def test_the_hash_is_kafkas() -> None:
    assert metadata_hash(TOPICS, ["t1"]) == 7103239364556691912
    assert metadata_hash(TOPICS, ["t3", "t0", "t2", "t1"]) == 4772125794259852925


def test_topics_that_do_not_exist_do_not_count() -> None:
    assert metadata_hash(TOPICS, ["t1", "nowhere"]) == metadata_hash(TOPICS, ["t1"])
    assert metadata_hash(TOPICS, ["nowhere"]) == 0


def test_racks_count_in_whatever_order_they_come() -> None:
    def with_racks(*racks: tuple[str, ...]) -> int:
        return metadata_hash({"t0": Topic("t0", 2, "qFZ680nJNnGYp7NPSxBNXQ", racks)}, ["t0"])

    assert with_racks(("r2", "r0"), ("rack,1",)) == -5995223252470622919
    assert with_racks(("r0", "r2"), ("rack,1",)) == -5995223252470622919
    assert with_racks(("r0", "r2"), ()) == with_racks(("r0", "r2")) != with_racks()
