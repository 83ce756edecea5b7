"""Makes nonsense of rows of the request log, the same nonsense for the same seed."""

from __future__ import annotations

import json
import random
from typing import Any

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import VERSIONS
from schemas.requests import CONTROL_APIS

TEXTS = ["", " ", "g", "ü", "\U0001f600", "\ud800", "\udfff\ud800", "\x00", "a" * 3_000, "@1/x", "null", "-1", "%s{}"]
NUMBERS = [0, 1, -1, -2, 2**31 - 1, 2**31, -(2**31) - 1, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 10**30]
ODD: list[Any] = [None, True, False, 1.5, float("inf"), [], {}, [None], {"a": 1}, b"bytes", *TEXTS, *NUMBERS]

_BODIES = [
    "", "{", "}", "null", "[]", "0", '""', "nonsense", "{}" * 3, "[" * 500, '{"a":' * 200, "1e999", "NaN", "\x00",
    '{"groupId":"\\ud800"}', '{"groupId":null}', '{"groupId":1}', '{"groupId":"g","groupId":"h"}',
    '{"groupId":"g","memberId":"\\udc00"}', "\ud800", '{"groups":[{}]}', '{"topics":[{"partitions":[{}]}]}',
    '{"groups":[null]}', '{"protocols":{}}', "\ufeff{}", "  {}  ", '{"groupId":"g","sessionTimeoutMs":1e3}',
]  # fmt: skip

#: What stands in the place of a character of the body, or of all from there on.
_DAMAGE = ["", "{", "\\", "\x00", '"', "9" * 20, "\ud800"]

_NAMES = tuple(Request._fields)
_APIS = [*VERSIONS, *CONTROL_APIS, "", "Nonsense", "heartbeat", "Fetch"]


def _are_protocols(node: list[Any]) -> bool:
    """A member with one protocol twice counts as two who support it, and its group stands still: as in Kafka."""
    return any(isinstance(item, dict) and "metadata" in item for item in node)


class Mutator:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def mutate(self, row: Request) -> Request:
        pick = self._random
        for _ in range(pick.choice([1, 1, 1, 2, 4])):
            row = pick.choice([self._field, self._body, self._within, self._within, self._api, self._time])(row)
        return row

    def _field(self, row: Request) -> Request:
        return row._replace(**{self._random.choice(_NAMES): self._random.choice(ODD)})

    def _body(self, row: Request) -> Request:
        how = self._random.random()
        if how > 0.6 or not isinstance(row.body, str):
            return row._replace(body=self._random.choice(_BODIES))
        at = self._random.randrange(len(row.body) + 1)
        after = row.body[at + 1 :] if how > 0.3 else ""
        return row._replace(body=row.body[:at] + self._random.choice(_DAMAGE) + after)

    def _within(self, row: Request) -> Request:
        """Changes something in the body, where it is one."""
        try:
            body = json.loads(row.body or "")
        except (TypeError, ValueError, RecursionError):
            return row
        self._change(body)
        try:
            return row._replace(body=json.dumps(body))
        except (TypeError, ValueError):
            return row

    def _change(self, node: Any) -> None:
        pick = self._random
        while isinstance(node, dict | list) and node:
            key = pick.choice(list(node)) if isinstance(node, dict) else pick.randrange(len(node))
            if isinstance(node[key], dict | list) and node[key] and pick.random() < 0.7:
                node = node[key]
                continue
            kind = pick.randrange(4)
            if kind == 0:
                del node[key]
            elif kind == 1 and isinstance(node, list) and not _are_protocols(node):
                node.extend(node[:2] * pick.choice([1, 20]))
            elif kind == 2 and isinstance(node[key], int) and not isinstance(node[key], bool):
                node[key] = pick.choice([-node[key], node[key] + 1, *NUMBERS])
            else:
                node[key] = pick.choice(ODD)
            return

    def _api(self, row: Request) -> Request:
        if self._random.random() < 0.5:
            return row._replace(api_version=self._random.choice([*range(-1, 12), 99, 2**31, None]))
        return row._replace(api=self._random.choice(_APIS))

    def _time(self, row: Request) -> Request:
        if type(row.log_ts) is not int:
            return row
        ahead = self._random.choice([0, -1, -(10**6), 1, 1_000, 60_000, 3_600_000, -row.log_ts, 2**62])
        return row._replace(log_ts=row.log_ts + ahead)
