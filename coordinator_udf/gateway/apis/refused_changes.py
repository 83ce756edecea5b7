"""Changes of topics and settings where the log can't keep them: refused, entry by entry, with what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coordinator_udf.gateway.apis.alter_configs import ALTERATIONS
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.wire.shaping import answer

#: What changes topics and settings of groups.
CHANGES: Final = ALTERATIONS | {"CreateTopics", "CreatePartitions", "DeleteTopics"}

_WHY: Final = (
    "the request log is a Kafka topic, which has no place for topics and settings that clients create: "
    "name them in the gateways' settings file, or put a cluster behind them (--upstream)"
)


def refuse_change(api: str, version: int, request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the answer that refuses all that a request of `CHANGES` asks for."""
    refusal = {"errorCode": int(Errors.POLICY_VIOLATION), "errorMessage": _WHY}
    match api:
        case "CreateTopics":
            nothing = {"numPartitions": -1, "replicationFactor": -1}
            return answer(api, version, topics=[{"name": e["name"], **nothing, **refusal} for e in request["topics"]])
        case "CreatePartitions":
            return answer(api, version, results=[{"name": entry["name"], **refusal} for entry in request["topics"]])
        case "DeleteTopics":
            asked = request["topics"] if version >= 6 else [{"name": name} for name in request["topicNames"]]
            return answer(api, version, responses=[{**entry, **refusal} for entry in asked])
        case _:
            kinds = [{name: entry[name] for name in ("resourceType", "resourceName")} for entry in request["resources"]]
            return answer(api, version, responses=[{**kind, **refusal} for kind in kinds])
