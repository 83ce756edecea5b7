"""The groups that an answer about several tells of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def groups_of(side: Any) -> dict[str, dict[str, Any]]:
    """Returns what one side of a difference says of each group, by its id."""
    body = side.get("body", {}) if isinstance(side, Mapping) else {}
    return {str(group.get("groupId")): group for group in [*(body.get("groups") or ()), *(body.get("results") or ())]}
