"""A row of the request log and a row that a shard puts out, as the shard sees them (columns: schemas/)."""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    """One row of the request log, without its source. Columns and units: schemas/requests.py."""

    partition: int
    offset: int
    log_ts: int
    request_id: str | None
    api: str
    api_version: int
    group_id: str | None = None
    member_id: str | None = None
    generation_or_epoch: int | None = None
    group_instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    proposed_member_id: str | None = None
    recorded_leader: str | None = None
    recorded_protocol: str | None = None
    parts: int | None = None
    body: str | None = None


class Output(NamedTuple):
    """One row that a shard puts out, without its source. Columns and units: schemas/outputs.py."""

    kind: str
    partition: int
    seq: int
    ts: int
    request_id: str | None = None
    by: str | None = None
    api: str | None = None
    api_version: int | None = None
    group_id: str | None = None
    member_id: str | None = None
    error_code: int | None = None
    body: str | None = None
    record_type: str | None = None
    record_key: str | None = None
    value_version: int | None = None
    record_offset: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    assignment_refs: str | None = None
    parts: int | None = None
    payload: bytes | None = None
