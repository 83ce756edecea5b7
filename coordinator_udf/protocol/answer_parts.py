"""From the answers of a spanning request's parts back to one answer (`protocol.requests.SPANNING`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


def merge_parts(
    api: str, api_version: int, bodies: Sequence[str | None], request_groups: Sequence[str] | None
) -> str | None:
    """Returns one answer from the answers of all shards that were asked.

    Args:
        bodies: the JSON answers, one a part; None of a part that failed and can't say so.
        request_groups: the groups in the order in which the request named them; None where it named none.

    Returns:
        The JSON answer; None if a part is. The first part that answered with an error decides the top-level error.
    """
    if len(bodies) == 1:
        return bodies[0]
    decoded = [msgspec.json.decode(body) for body in bodies if body is not None]
    if len(decoded) < len(bodies):
        # The answer of the others alone would look as if those groups hadn't been asked for.
        return None
    merged: dict[str, Any] = dict(decoded[0])
    field = "results" if api == "DeleteGroups" else "groups"
    items = [item for part in decoded for item in part.get(field) or ()]
    if request_groups is not None:
        place = {group: i for i, group in reversed(list(enumerate(request_groups)))}
        items.sort(key=lambda item: place.get(item.get("groupId"), len(place)))
    merged[field] = items
    for part in decoded:
        if part.get("errorCode"):
            merged["errorCode"] = part["errorCode"]
            if api == "ListGroups":
                # A list that lacks a shard is none. Source: GroupCoordinatorService.listGroups.
                merged[field] = []
            break
    return msgspec.json.encode(merged).decode()
