"""What a shard's effects are ascribed to: a request, or a timer."""

from __future__ import annotations

from typing import Any, NamedTuple

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import JoinGroup, LeaveGroup, SyncGroup


class Cause(NamedTuple):
    """A request with who sent it, or a timer's kind with the member that it was armed for."""

    request_id: str | None = None
    api: str | None = None
    member_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    principal: str | None = None
    client_reason: str | None = None
    timer: str | None = None


def request_cause(row: Request, body: Any) -> Cause:
    """Returns a request as a cause.

    Args:
        body: what it says, as the struct of its API; None if that isn't known.
    """
    member_id = row.member_id
    if isinstance(body, LeaveGroup) and body.members and not member_id:
        # Newer clients name those that leave in a list; nearly always it is one.
        member_id = body.members[0].member_id
    who = (member_id, row.client_id, row.client_host, row.principal)
    return Cause(row.request_id, row.api, *who, _client_reason(body))


def _client_reason(body: Any) -> str | None:
    """Returns the client's own reason for its request (KIP-800)."""
    if isinstance(body, JoinGroup):
        return body.reason
    if isinstance(body, LeaveGroup) and body.members:
        return body.members[0].reason
    if isinstance(body, SyncGroup):
        return body.sync_error_reason
    return None
