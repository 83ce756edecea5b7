"""Requests of which a broker's authorizer refused a part: what is left of them reached the coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare
from coordinator_udf.tables.outputs import Outputs
from coordinator_udf.tables.rows import to_tables
from tests.replay.broker_log import KafkaLog
from tests.replay.test_long_log import assert_same_in_portions

REFUSED_TOPIC, REFUSED_GROUP = 29, 30


def commit(log: KafkaLog, offset: int, topics: Sequence[tuple[str, int]], *, group: str = "g", **place: Any) -> None:
    """A commit of one offset of topics, each with the error that it is answered."""
    request = {
        "groupId": group, "generationIdOrMemberEpoch": -1, "memberId": "", "groupInstanceId": None,
        "topics": [
            {"name": name, "partitions": [
                {"partitionIndex": 0, "committedOffset": offset, "committedLeaderEpoch": -1, "committedMetadata": ""}
            ]} for name, _ in topics
        ],
    }  # fmt: skip
    answer = {
        "throttleTimeMs": 0,
        "topics": [{"name": name, "partitions": [{"partitionIndex": 0, "errorCode": error}]} for name, error in topics],
    }
    log.add("OFFSET_COMMIT", request, answer, version=8, **place)


def fetch(log: KafkaLog, groups: Sequence[tuple[str, int, Sequence[tuple[str, int, int]]]], **place: Any) -> None:
    """A fetch of groups' offsets, each with its error, and topics with their offsets and errors."""
    request = {
        "groups": [
            {"groupId": group, "memberId": None, "memberEpoch": -1,
             "topics": [{"name": name, "partitionIndexes": [0]} for name, _, _ in topics]}
            for group, _, topics in groups
        ],
        "requireStable": False,
    }  # fmt: skip
    answer = {
        "throttleTimeMs": 0,
        "groups": [
            {"groupId": group, "errorCode": refused, "topics": [] if refused else [
                {"name": name, "partitions": [
                    {"partitionIndex": 0, "committedOffset": offset, "committedLeaderEpoch": -1, "metadata": "",
                     "errorCode": error}
                ]} for name, offset, error in topics
            ]} for group, refused, topics in groups
        ],
    }  # fmt: skip
    log.add("OFFSET_FETCH", request, answer, version=9, **place)


def delete(log: KafkaLog, groups: Sequence[tuple[str, int]], **place: Any) -> None:
    answer = {"throttleTimeMs": 0, "results": [{"groupId": group, "errorCode": error} for group, error in groups]}
    log.add("DELETE_GROUPS", {"groupsNames": [group for group, _ in groups]}, answer, version=2, **place)


def replayed(log: KafkaLog, tmp_path: Path, partitions: int = 4) -> tuple[ReplaySource, Outputs, list[str]]:
    source = read_source(log.write(tmp_path / "log"), "log", ReplayOptions(partitions=partitions))
    outputs, verdict = run_and_compare(source)
    return source, outputs, [each.request_id or "" for each in verdict.differences if each.undecided is None]


def committed(outputs: Outputs) -> list[tuple[str, str, int]]:
    rows = to_tables(outputs)["consumer_offsets"].to_pylist()
    return [(row["group_id"], row["topic"], row["offset_commit"]["offset"]) for row in rows if row["offset_commit"]]


def test_a_commit_that_is_refused_in_part_commits_the_rest(tmp_path: Path) -> None:
    log = KafkaLog()
    commit(log, 7, [("t1", 0), ("secret", REFUSED_TOPIC)], arrives=0)
    commit(log, 8, [("secret", REFUSED_TOPIC), ("t1", 0)], arrives=100)
    fetch(log, [("g", 0, [("t1", 8, 0)])], arrives=200)
    source, outputs, different = replayed(log, tmp_path)
    assert different == []
    assert committed(outputs) == [("g", "t1", 7), ("g", "t1", 8)]
    assert source.notes["answers decided by authorization, in part, replayed without that"] == 2


def test_what_is_refused_for_two_reasons_is_compared_without_the_authorizers(tmp_path: Path) -> None:
    log = KafkaLog()
    for at_ms in (0, 100):
        # No such member: the coordinator says so of the topic that reached it.
        commit(log, 7, [("t1", 0), ("secret", REFUSED_TOPIC)], arrives=at_ms)
    log.lines[-1] = log.lines[-1].replace('"generationIdOrMemberEpoch": -1', '"generationIdOrMemberEpoch": 3')
    log.lines[-1] = log.lines[-1].replace('"errorCode": 0', '"errorCode": 25')
    _, outputs, different = replayed(log, tmp_path)
    assert different == []
    assert committed(outputs) == [("g", "t1", 7)]


def test_offsets_of_some_topics_and_groups_are_refused(tmp_path: Path) -> None:
    log = KafkaLog()
    for group in ("g", "h"):
        commit(log, 7, [("t1", 0)], group=group, arrives=0)
    for at_ms in (100, 200):
        fetch(
            log, [("g", 0, [("t1", 7, 0), ("secret", -1, REFUSED_TOPIC)]), ("hidden", REFUSED_GROUP, [("t1", -1, 0)]),
                  ("h", 0, [("t1", 7, 0)])], arrives=at_ms,
        )  # fmt: skip
    # What the coordinator says is compared all the same.
    fetch(log, [("g", 0, [("t1", 9, 0), ("secret", -1, REFUSED_TOPIC)])], arrives=300)
    _, outputs, different = replayed(log, tmp_path)
    assert [each[-2:] for each in different] == ["/5"]
    bodies = [msgspec.json.decode(row["body"]) for row in outputs.responses.to_pylist() if row["api"] == "OffsetFetch"]
    assert [{group["groupId"] for group in body["groups"]} for body in bodies] == [{"g", "h"}, {"g", "h"}, {"g"}]


@pytest.mark.parametrize("partitions", [1, 50])
def test_groups_of_which_some_are_refused_are_deleted(tmp_path: Path, partitions: int) -> None:
    log = KafkaLog()
    for number, group in enumerate(("g", "h")):
        commit(log, 7, [("t1", 0)], group=group, arrives=0)
        delete(log, [(group, 0), ("hidden", REFUSED_GROUP)], arrives=100 + number)
        fetch(log, [(group, 0, [("t1", -1, 0)])], arrives=200)
    _, _, different = replayed(log, tmp_path, partitions)
    assert different == []


def test_what_is_refused_once_only_is_no_fact(tmp_path: Path) -> None:
    log = KafkaLog()
    commit(log, 7, [("t1", 0), ("secret", REFUSED_TOPIC)], arrives=0)
    _, _, different = replayed(log, tmp_path)
    assert len(different) == 1


def test_a_request_that_is_refused_as_a_whole_never_reaches_the_coordinator(tmp_path: Path) -> None:
    log = KafkaLog()
    for at_ms in (0, 100):
        commit(log, 7, [("t1", REFUSED_TOPIC), ("secret", REFUSED_TOPIC)], arrives=at_ms)
    source, outputs, different = replayed(log, tmp_path)
    assert different == []
    assert committed(outputs) == []
    assert source.notes["answers decided by authorization, adopted"] == 2


def test_a_long_log_is_replayed_alike_in_several_tasks(tmp_path: Path) -> None:
    log = KafkaLog()
    groups = [f"g{number}" for number in range(6)]
    for number, group in enumerate(groups):
        commit(log, 7, [("t1", 0), ("secret", REFUSED_TOPIC)], group=group, arrives=10 * number)
        fetch(log, [(group, 0, [("t1", 7, 0)]), ("hidden", REFUSED_GROUP, [("t1", -1, 0)])], arrives=100 + number)
        delete(log, [(group, 0), ("hidden", REFUSED_GROUP)], arrives=200 + number)
    delete(log, [("hidden", REFUSED_GROUP), *((group, 69) for group in groups)], arrives=300)
    _, _, different = replayed(log, tmp_path, 50)
    assert different == []
    assert_same_in_portions(tmp_path / "log", tmp_path, 1, 5)


@pytest.mark.parametrize(
    ("api", "request_", "answer"),
    [
        ("OFFSET_FETCH", {"groups": ["g"]}, {"groups": [{"groupId": "g", "errorCode": 30, "topics": []}]}),
        ("OFFSET_FETCH", {"groups": [{"groupId": "g", "topics": ["t"]}]}, {"groups": [{"groupId": "g", "topics": [
            {"name": "t", "partitions": [{"partitionIndex": 0, "errorCode": 29}]}]}]}),
        ("OFFSET_FETCH", {"groups": [{"groupId": ["g"]}]}, {"groups": [{"groupId": "g", "errorCode": 30}]}),
        ("DELETE_GROUPS", {"groupsNames": [{"a": 1}]}, {"results": [{"groupId": "g", "errorCode": 30}]}),
        ("OFFSET_DELETE", {"groupId": "g", "topics": ["t"]}, {"errorCode": 0, "topics": [
            {"name": "t", "partitions": [{"partitionIndex": 0, "errorCode": 29}]}]}),
        ("OFFSET_DELETE", {"groupId": "g", "topics": 5}, {"errorCode": 0, "topics": [
            {"name": "t", "partitions": [{"partitionIndex": 0, "errorCode": 29}]}]}),
    ],
)  # fmt: skip
def test_what_names_no_topic_or_group_takes_nobody_else_down(
    api: str, request_: dict[str, Any], answer: dict[str, Any], tmp_path: Path
) -> None:
    log = KafkaLog()
    commit(log, 7, [("t1", 0)], arrives=0)
    for at_ms in (100, 200):
        log.add(api, request_, {"throttleTimeMs": 0, **answer}, version={"OFFSET_FETCH": 9}.get(api, 0), arrives=at_ms)
    fetch(log, [("g", 0, [("t1", 7, 0)])], arrives=300)
    _, _, different = replayed(log, tmp_path)
    assert not [each for each in different if each.endswith(("/1", "/4"))]


def test_what_a_transactions_coordinator_says_of_the_rest_is_taken_over(tmp_path: Path) -> None:
    log = KafkaLog()
    request = {
        "transactionalId": "x", "groupId": "g", "producerId": 1, "producerEpoch": 0, "generationId": -1,
        "memberId": "", "groupInstanceId": None,
        "topics": [{"name": name, "partitions": [{"partitionIndex": 0, "committedOffset": 7,
                    "committedLeaderEpoch": -1, "committedMetadata": ""}]} for name in ("t1", "secret")],
    }  # fmt: skip
    answer = {"throttleTimeMs": 0, "topics": [
        {"name": name, "partitions": [{"partitionIndex": 0, "errorCode": error}]}
        for name, error in (("t1", 48), ("secret", REFUSED_TOPIC))
    ]}  # fmt: skip
    for at_ms in (0, 100):
        log.add("TXN_OFFSET_COMMIT", request, answer, version=3, arrives=at_ms)
    source, _, different = replayed(log, tmp_path)
    assert different == []
    assert source.notes["answers decided by verification of a transaction, adopted"] == 2
