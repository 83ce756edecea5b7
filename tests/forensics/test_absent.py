"""What is said where a report would tell of nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from coordinator_udf.forensics.absent import why_nothing
from coordinator_udf.forensics.window import Window

MANY = [f"orders-{number:03}" for number in range(200)]
SPAN = "the inputs are of 2023-11-14 22:13:20 to 2023-11-14 22:14:20"


def why(window: Window, names: list[str]) -> str:
    def ask(_: str) -> list[dict[str, Any]]:
        return [{"group_id": name, "first": 1_700_000_000_000, "last": 1_700_000_060_000} for name in names]

    return why_nothing(ask, window)


@pytest.mark.parametrize(
    ("window", "names", "said"),
    [
        (Window(("order",)), ["orders", "pays"], "these inputs tell nothing; expected one of: orders, pays"),
        (Window(("order-017",)), MANY, "of the 200 groups in them these are near: orders-017, "),
        (Window(("zzz",)), MANY, "of the 200 groups in them none is near; the first ones are orders-000, orders-001, "),
        (Window(), [], "these inputs tell of no group"),
        (Window(), ["a", "b"], "nothing that happened to any group is told in these inputs, which name 2 groups"),
        (Window(None, datetime(2026, 1, 1)), ["a"], f"with --from 2026-01-01 00:00:00 (UTC); {SPAN}"),
    ],
)
def test_it_is_said_which_groups_there_are(window: Window, names: list[str], said: str) -> None:
    assert said in why(window, names)
