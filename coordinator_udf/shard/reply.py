"""The answer to the request in hand, as the request's row says whom it goes to."""

from __future__ import annotations

from typing import Any

from coordinator_udf.groups.context import Context
from coordinator_udf.protocol.log_row import Request

Body = dict[str, Any]


def reply(ctx: Context, row: Request, body: Body, refs: tuple[int, ...] = ()) -> None:
    """Answers a request.

    Args:
        refs: the records with the assignments that placeholders in the body stand for.
    """
    ctx.answer(
        row.request_id,
        row.api,
        row.api_version,
        body,
        group_id=row.group_id,
        member_id=row.member_id,
        refs=refs,
        parts=row.parts,
    )
