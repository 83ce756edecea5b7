"""Assignments that Kafka's own assignors made of made-up groups, round after round: ours make the same.

A line is an assignor and rounds; a round has topics with the racks of each partition's replicas, members, and the
result by member id, or the class of the exception. Each line's rounds were run by one assignor, which may remember.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from typing import Any

from coordinator_udf.members.client_assignors import make_assignors
from coordinator_udf.members.client_assignors.spec import ClientAssignor, ClusterTopics, MemberSubscription
from coordinator_udf.members.cluster_view import TopicView
from coordinator_udf.members.exceptions import ClientException
from coordinator_udf.members.inputs import TopicPartition
from tests.conftest import ROOT

RECORDING = ROOT / "tests" / "data" / "members" / "assignors.jsonl.gz"
CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "coop": "CooperativeStickyAssignor",
}


def _subscription(member: dict[str, Any]) -> MemberSubscription:
    return MemberSubscription(
        tuple(member["topics"]),
        tuple(TopicPartition(topic, number) for topic, number in member["owned"]),
        None if member["userData"] is None else base64.b64decode(member["userData"]),
        member["generation"],
        member["rack"],
        member["instance"],
    )


def _result(assignor: ClientAssignor, line: dict[str, Any]) -> object:
    topics = {
        name: TopicView(name, name, len(racks), tuple(map(tuple, racks))) for name, racks in line["topics"].items()
    }
    subscriptions = {member["id"]: _subscription(member) for member in line["members"]}
    try:
        assigned = assignor.assign(ClusterTopics(topics), subscriptions)
    except ClientException as error:
        return error.class_name
    return {member: sorted(map(list, one.partitions)) for member, one in assigned.items()}


def _differences() -> Iterator[tuple[int, int]]:
    for number, raw in enumerate(gzip.decompress(RECORDING.read_bytes()).splitlines(), 1):
        line = json.loads(raw)
        (assignor,) = make_assignors([CLASSES[line["assignor"]]])
        for at, one in enumerate(line["rounds"], 1):
            if _result(assignor, one) != one["result"]:
                yield number, at


def test_all_assignments_are_kafkas() -> None:
    assert list(_differences()) == []


def test_the_recording_has_every_assignor_and_errors() -> None:
    lines = [json.loads(raw) for raw in gzip.decompress(RECORDING.read_bytes()).splitlines()]
    assert {line["assignor"] for line in lines} == set(CLASSES)
    results = [one["result"] for line in lines for one in line["rounds"]]
    assert len(results) > 500
    assert "IllegalStateException" in results
