"""The columns of the request log, each said once: from here come the shard's rows and the schemas of Spark and Arrow.

Knows no Spark, so that the state machines may use it.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from msgspec import Meta

#: Whole numbers of 32 and of 64 bits.
Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Request(NamedTuple):
    """One row of the request log, without its source.

    A column without a default is one that a shard's handlers count on; a row that lacks it is rejected.
    """

    partition: Int
    #: Dense within a partition.
    offset: Long
    #: Milliseconds since the epoch at which the row was appended. The only clock there is.
    log_ts: Long
    #: Unique within a source: how the answer finds its way back.
    request_id: str | None
    #: Kafka's API name (JoinGroup, Heartbeat, ...) or the name of a control row (schemas.requests.CONTROL_APIS).
    api: str
    api_version: Int
    group_id: str | None = None
    member_id: str | None = None
    generation_or_epoch: Int | None = None
    group_instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    #: Who sent it, as a gateway or a broker made sure of it (``User:NAME``); null where nobody asked.
    principal: str | None = None
    #: The id that a new member will get if this request creates one. Proposed by whoever appends the row.
    proposed_member_id: str | None = None
    #: In a replay: what the original coordinator chose where Kafka leaves it to the order of a hash map.
    recorded_leader: str | None = None
    recorded_protocol: str | None = None
    #: How many rows of the log make up this request (one a shard asked); null and 1 mean one.
    parts: Int | None = None
    #: All else of the request: a JSON object in Kafka's JSON field names for the request's version.
    body: str | None = None
