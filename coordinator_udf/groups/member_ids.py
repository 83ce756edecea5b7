"""The id that a new member gets: proposed by whoever appended the request, else made of its place in the log."""

from __future__ import annotations

import hashlib
import uuid

from coordinator_udf.protocol.log_row import Request


def new_member_id(row: Request, group_instance_id: str | None) -> str:
    """The id of the member that this request would make. The same row gives the same id, whenever it is handled.

    As Kafka's ids it begins with the instance id or the client id and ends with a uuid.
    """
    # Who proposes an empty text proposes none: it is what a member says that has no id, and no timer could be its own.
    if row.proposed_member_id:
        return row.proposed_member_id
    place = hashlib.sha256(f"{row.partition}/{row.offset}".encode()).digest()[:16]
    prefix = group_instance_id if group_instance_id is not None else row.client_id or ""
    return f"{prefix}-{uuid.UUID(bytes=place, version=4)}"
