"""What a shard decided, a tuple each, by kind: each kind has columns of its own (schemas/outputs.py).

They are made by the hundred thousand and become columns: hence plain tuples, made where something is decided.
"""

from __future__ import annotations

from typing import Any

#: The columns of each kind, in the order of its tuples. ``seq`` comes first.
COLUMNS: dict[str, tuple[str, ...]] = {
    "responses": (
        "seq", "ts", "request_id", "answered_by", "api", "api_version", "group_id", "member_id", "error_code", "body",
        "assignment_refs", "parts",
    ),
    "records": (
        "seq", "ts", "request_id", "offset", "record_type", "key", "group_id", "topic", "topic_partition", "member_id",
        "value_version", "producer_id", "producer_epoch", "body", "assignment_refs",
    ),
    "assignments": ("seq", "ts", "request_id", "group_id", "member_id", "record_offset", "payload"),
    "transitions": (
        "seq", "ts", "group_id", "from_state", "to_state", "generation", "protocol_type", "protocol", "leader", "rule",
        "reason", "members", "cause_request_id", "cause_api", "cause_member_id", "cause_client_id", "cause_client_host",
        "cause_principal", "cause_client_reason", "cause_timer",
    ),
    "rejected": ("seq", "ts", "request_id", "api", "group_id", "reason", "raw", "traceback"),
}  # fmt: skip

#: The place of each column in its kind's tuples.
PLACES: dict[str, dict[str, int]] = {
    kind: {name: place for place, name in enumerate(columns)} for kind, columns in COLUMNS.items()
}

Row = tuple[Any, ...]


class Decisions:
    """What a shard decided and nobody has taken yet.

    Attributes:
        responses, records, assignments, transitions, rejected: tuples as `COLUMNS` has them, in the order of ``seq``.
    """

    __slots__ = tuple(COLUMNS)

    def __init__(self) -> None:
        self.responses: list[Row] = []
        self.records: list[Row] = []
        self.assignments: list[Row] = []
        self.transitions: list[Row] = []
        self.rejected: list[Row] = []

    def by_kind(self) -> dict[str, list[Row]]:
        """Returns all there is, by the kinds of `COLUMNS`."""
        return dict(
            zip(COLUMNS, (self.responses, self.records, self.assignments, self.transitions, self.rejected), strict=True)
        )

    def is_empty(self) -> bool:
        """Tells whether there is nothing."""
        return not (self.records or self.responses or self.transitions or self.assignments or self.rejected)

    def mark(self) -> tuple[int, ...]:
        """Returns where everything ends now, for `cut`."""
        return tuple(map(len, self.by_kind().values()))

    def cut(self, mark: tuple[int, ...]) -> None:
        """Forgets what was decided after a mark."""
        for rows, end in zip(self.by_kind().values(), mark, strict=True):
            del rows[end:]
