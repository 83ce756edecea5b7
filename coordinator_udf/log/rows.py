"""From a request to the rows of the request log.

Whoever appends rows uses this: the gateway, the readers of historical logs, tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.protocol.requests import CLIENT_ASSIGNMENT_APIS, OFFSET_FETCH_BATCH_VERSION, SPANNING, VERSIONS
from schemas.requests import CONTROL_APIS

#: The fields that other APIs call otherwise.
_EPOCH_FIELDS = {
    "OffsetCommit": "generationIdOrMemberEpoch",
    **dict.fromkeys(("ConsumerGroupHeartbeat", *CLIENT_ASSIGNMENT_APIS), "memberEpoch"),
}
_INSTANCE_FIELDS = {"ConsumerGroupHeartbeat": "instanceId"}

#: A row that says nothing: every column but those that the log adds.
_NOTHING: dict[str, Any] = dict.fromkeys(Request._fields) | {"partition": 0}
del _NOTHING["offset"]

#: The longest pause of a client between two attempts to connect, by default (kafka-python; librdkafka 10 s, Java 1 s).
RECONNECT_MAX_MS = 30_000

#: In how long a client is heard from that is connected to a coordinator which stood still: two heartbeats, by default.
#: One whose session ended by its own clock may have come back as a new member (librdkafka does), for which the group
#: must not wait until the old one is gone too; Kafka, for which time passes in a pause, ends such a session at once.
HEARD_WITHIN_MS = 6_000

_INT32 = (-(2**31), 2**31 - 1)


def are_controls(apis: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Returns which values of the column ``api`` are of control rows (schemas.requests.CONTROL_APIS).

    A missing one is not.
    """
    return pc.is_in(apis, value_set=_controls())


@cache
def _controls() -> pa.Array:
    # Not when the module is imported: for the first array of a process Arrow imports pandas, which takes half a second.
    return pa.array(CONTROL_APIS)


def request_rows(
    *,
    partitions: int,
    log_ts: int,
    request_id: str,
    api: str,
    api_version: int,
    client_id: str | None,
    client_host: str | None,
    body: Mapping[str, Any],
    principal: str | None = None,
    proposed_member_id: str | None = None,
    recorded_leader: str | None = None,
    recorded_protocol: str | None = None,
) -> list[dict[str, Any]]:
    """Returns the rows that put one request on the log: one, or one for each shard that a spanning request asks.

    Args:
        partitions: the log's number of partitions.
        log_ts: milliseconds since the epoch.
        body: the request in Kafka's JSON field names for its version.
        principal: who sent it (``User:NAME``), where somebody made sure of it.

    Returns:
        Rows with every column of schemas.requests.REQUEST_LOG but ``source`` and ``offset``.

    Raises:
        BadRequest: the request can't be one: an API or version that isn't served, no group id, a wrong type.
    """
    _refuse_unserved(api, api_version)
    row: dict[str, Any] = {
        **_NOTHING,
        "log_ts": log_ts,
        "request_id": request_id,
        "api": api,
        "api_version": api_version,
        "client_id": client_id,
        "client_host": client_host,
        "principal": principal,
        "proposed_member_id": proposed_member_id,
        "recorded_leader": recorded_leader,
        "recorded_protocol": recorded_protocol,
        "parts": 1,
    }
    if api in SPANNING and not (api == "OffsetFetch" and api_version < OFFSET_FETCH_BATCH_VERSION):
        return _spanning_rows(row, api, body, partitions)
    group_id = _text(body, "groupId")
    if group_id is None:
        raise BadRequest("groupId", None, "text")
    row["partition"] = partition_for(group_id, partitions)
    row["group_id"] = group_id
    row["member_id"] = _text(body, "memberId")
    row["group_instance_id"] = _text(body, _INSTANCE_FIELDS.get(api, "groupInstanceId"))
    row["generation_or_epoch"] = _int32(body, _EPOCH_FIELDS.get(api, "generationId"))
    if api != "Heartbeat":
        row["body"] = _json(body)
    return [row]


def _refuse_unserved(api: str, api_version: int) -> None:
    versions = VERSIONS.get(api)
    if versions is None:
        raise BadRequest("api", api, "one of " + ", ".join(VERSIONS))
    if not isinstance(api_version, int) or not versions[0] <= api_version <= versions[1]:
        raise BadRequest(f"api_version of {api}", api_version, f"{versions[0]} to {versions[1]}")


def control_rows(
    *,
    partitions: int,
    log_ts: int,
    api: str,
    body: Mapping[str, Any] | None = None,
    request_id: str | None = None,
) -> list[dict[str, Any]]:
    """Returns the rows that put one control event (schemas.requests.CONTROL_APIS) on the log, one a partition."""
    shared = {
        **_NOTHING,
        "log_ts": log_ts,
        "request_id": request_id,
        "api": api,
        "api_version": 0,
        "parts": partitions,
        "body": None if body is None else _json(body),
    }
    return [{**shared, "partition": partition} for partition in range(partitions)]


def downtime_rows(partitions: int, from_ms: int, until_ms: int, *, stayed_connected: bool) -> list[dict[str, Any]]:
    """Returns the rows that say that nobody could append in between. Each is of the time of its partition's newest row.

    Args:
        stayed_connected: whether clients could send requests all the while, though nobody read them.
    """
    body = {"fromMs": from_ms, "untilMs": until_ms}
    if stayed_connected:
        body["heardWithinMs"] = HEARD_WITHIN_MS
    else:
        # Who is refused tries again after pauses that grow with the time that has passed, up to some bound.
        body["graceMs"] = min(until_ms - from_ms, RECONNECT_MAX_MS)
    return control_rows(partitions=partitions, log_ts=0, api="Downtime", body=body)


def _spanning_rows(row: dict[str, Any], api: str, body: Mapping[str, Any], partitions: int) -> list[dict[str, Any]]:
    field = SPANNING[api]
    if field is None:
        return [{**row, "partition": i, "parts": partitions, "body": _json(body)} for i in range(partitions)]
    groups = body.get(field)
    if not isinstance(groups, list | tuple):
        raise BadRequest(f"{field} of {api}", groups, "a list of groups")
    shares: dict[int, list[Any]] = {}
    for group in groups:
        group_id = group.get("groupId") if isinstance(group, Mapping) else group
        if not isinstance(group_id, str):
            raise BadRequest(f"a group of {api}", group, "a group id")
        shares.setdefault(partition_for(group_id, partitions), []).append(group)
    if not shares:
        shares[0] = []
    return [
        {**row, "partition": partition, "parts": len(shares), "body": _json({**body, field: share})}
        for partition, share in sorted(shares.items())
    ]


def _json(body: Mapping[str, Any]) -> str:
    return msgspec.json.encode(body).decode()


def _text(body: Mapping[str, Any], field: str) -> str | None:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadRequest(field, value, "text")
    return value


def _int32(body: Mapping[str, Any], field: str) -> int | None:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not _INT32[0] <= value <= _INT32[1]:
        raise BadRequest(field, value, "a whole number of 32 bits")
    return value
