"""The id that a new member gets: proposed by whoever appended the request, else made of its place in the log."""

from __future__ import annotations

import hashlib
import uuid
from base64 import urlsafe_b64encode
from itertools import count

from coordinator_udf.protocol.log_row import Request


def new_member_id(row: Request, group_instance_id: str | None) -> str:
    """Returns the id of the member that this request would make.

    The same row gives the same id, whenever it is handled.

    As Kafka's ids it begins with the instance id or the client id and ends with a uuid.
    """
    # Who proposes an empty text proposes none: it is what a member says that has no id, and no timer could be its own.
    if row.proposed_member_id:
        return row.proposed_member_id
    prefix = group_instance_id if group_instance_id is not None else row.client_id or ""
    return f"{prefix}-{_uuid(row, 0)}"


def new_consumer_member_id(row: Request) -> str:
    """Returns the id of a consumer-protocol member that brings none (version 0): a uuid as Kafka's Uuid writes it."""
    if row.proposed_member_id:
        return row.proposed_member_id
    tries = (urlsafe_b64encode(_uuid(row, number).bytes).decode().rstrip("=") for number in count())
    # Uuid.randomUuid draws again where the text begins like an option of a command line.
    return next(text for text in tries if not text.startswith("-"))


def _uuid(row: Request, number: int) -> uuid.UUID:
    place = f"{row.partition}/{row.offset}" + (f"/{number}" if number else "")
    return uuid.UUID(bytes=hashlib.sha256(place.encode()).digest()[:16], version=4)
