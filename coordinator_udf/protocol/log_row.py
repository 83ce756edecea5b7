"""A row of the request log as the shard sees it (columns: schemas/requests.py)."""

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
