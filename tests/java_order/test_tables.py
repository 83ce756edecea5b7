"""The order in which Java walks a HashMap, against orders that Java walked (tests/data/README.md)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator_udf.java_order.tables import INITIAL_TABLE, grown_table, hash_order
from tests.conftest import ROOT

ORDERS: list[dict[str, Any]] = json.loads((ROOT / "tests" / "data" / "java_hashes.json").read_text("utf-8"))["orders"]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: str(len(order["inserted"])))
def test_keys_are_walked_as_java_walks_them(order: dict[str, Any]) -> None:
    keys = order["inserted"]
    table = INITIAL_TABLE
    for entries in range(1, len(keys) + 1):
        table = grown_table(table, entries)
    assert hash_order(keys, table) == [keys[place] for place in order["walked"]]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: str(len(order["inserted"])))
def test_a_table_does_not_shrink_when_keys_go(order: dict[str, Any]) -> None:
    keys = order["inserted"]
    left = [key for place, key in enumerate(keys) if place % 3]
    walked = hash_order(left, grown_table(INITIAL_TABLE, len(keys)))
    assert walked == [keys[place] for place in order["walked_after_removal"]]


@pytest.mark.parametrize(("entries", "table"), [(0, 16), (12, 16), (13, 32), (24, 32), (25, 64), (48, 64), (49, 128)])
def test_a_table_doubles_when_it_is_three_quarters_full(entries: int, table: int) -> None:
    assert grown_table(INITIAL_TABLE, entries) == table
