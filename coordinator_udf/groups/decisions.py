"""What a shard says, a tuple each, by kind: each kind has columns of its own (schemas/outputs.py has them all).

They are made by the hundred thousand and become columns: hence plain tuples, made where something is decided.
"""

from __future__ import annotations

from typing import Any

import msgspec

#: The columns of each kind, in the order of its tuples. ``seq`` comes first.
COLUMNS: dict[str, tuple[str, ...]] = {
    "response": (
        "seq", "ts", "request_id", "by", "api", "api_version", "group_id", "member_id", "error_code", "body",
        "assignment_refs", "parts",
    ),
    "record": (
        "seq", "ts", "request_id", "group_id", "body", "record_type", "record_key", "value_version", "record_offset",
        "producer_id", "producer_epoch", "assignment_refs",
    ),
    "assignment": ("seq", "ts", "request_id", "group_id", "member_id", "record_offset", "payload"),
    "transition": ("seq", "ts", "request_id", "group_id", "body"),
    "rejected": ("seq", "ts", "request_id", "api", "api_version", "group_id", "member_id", "body"),
}  # fmt: skip

Row = tuple[Any, ...]


class Said:
    """What a shard said and nobody has taken yet.

    Attributes:
        responses, records, assignments, transitions, rejected: tuples as `COLUMNS` has them, in the order of ``seq``.
    """

    __slots__ = ("assignments", "records", "rejected", "responses", "transitions")

    def __init__(self) -> None:
        self.responses: list[Row] = []
        self.records: list[Row] = []
        self.assignments: list[Row] = []
        self.transitions: list[Row] = []
        self.rejected: list[Row] = []

    def by_kind(self) -> dict[str, list[Row]]:
        """All there is, by the kinds of `COLUMNS`."""
        return dict(
            zip(COLUMNS, (self.responses, self.records, self.assignments, self.transitions, self.rejected), strict=True)
        )

    def mark(self) -> tuple[int, ...]:
        """Where everything ends now, for `cut`."""
        return tuple(map(len, self.by_kind().values()))

    def cut(self, mark: tuple[int, ...]) -> None:
        """Forgets what was said after a mark."""
        for rows, end in zip(self.by_kind().values(), mark, strict=True):
            del rows[end:]


class TransitionBody(msgspec.Struct, frozen=True):
    """The columns of group_transitions that an output has no columns for."""

    from_state: str | None
    to_state: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    rule: str
    reason: str | None
    members: tuple[str, ...] | None
    cause_request_id: str | None
    cause_api: str | None
    cause_member_id: str | None
    cause_client_id: str | None
    cause_client_host: str | None
    cause_client_reason: str | None
    cause_timer: str | None
