"""Produce: there is nowhere to put a record here, and each partition is told so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coordinator_udf.gateway.topics import TopicCatalog
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire.shaping import answer

#: What a producer is told, from v8 on.
REFUSAL: Final = "this is a group coordinator, which stores no records: produce to the cluster that has the topic"


def is_answered(request: Mapping[str, Any]) -> bool:
    """Returns whether the producer waits for an answer; if not, a broker closes the connection to tell of an error."""
    return bool(request["acks"] != 0)


def produce(version: int, request: Mapping[str, Any], catalog: TopicCatalog) -> dict[str, Any]:
    """Answers POLICY_VIOLATION for each partition that exists: clients don't try again after that."""
    responses = []
    for entry in request["topicData"]:
        topic = catalog.named(entry["name"])
        partitions = []
        for partition in entry["partitionData"]:
            index = partition["index"]
            there = topic is not None and 0 <= index < topic.partitions
            error = Errors.POLICY_VIOLATION if there else Errors.UNKNOWN_TOPIC_OR_PARTITION
            partitions.append(
                {
                    "index": index,
                    "errorCode": int(error),
                    "baseOffset": -1,
                    "logAppendTimeMs": -1,
                    "logStartOffset": -1,
                    "errorMessage": REFUSAL if there else None,
                }
            )
        responses.append({"name": entry["name"], "partitionResponses": partitions})
    return answer("Produce", version, responses=responses)
