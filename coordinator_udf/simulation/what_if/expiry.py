"""Tells a member that closes from one whose application doesn't poll: both leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_POLL_EXPIRED = "consumer poll timeout has expired"


def is_expiry(request: Mapping[str, Any]) -> bool:
    """Returns whether a LeaveGroup says that it is for max.poll.interval.ms. Some clients don't say."""
    members = request.get("members") or [{}]
    return _POLL_EXPIRED in str(members[0].get("reason") or "")
