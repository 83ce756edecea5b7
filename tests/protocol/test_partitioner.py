"""Java's hash of a text and Kafka's partition of a group, against values that Java computed (tests/data/README.md)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator_udf.protocol.partitioner import java_hash, partition_for
from tests.conftest import ROOT

HASHES: list[list[Any]] = json.loads((ROOT / "tests" / "data" / "java_hashes.json").read_text("utf-8"))["hashes"]


@pytest.mark.parametrize(("text", "value", "of_1", "of_8", "of_50"), HASHES)
def test_hashes_and_partitions_are_javas(text: str, value: int, of_1: int, of_8: int, of_50: int) -> None:
    assert java_hash(text) == value
    assert [partition_for(text, partitions) for partitions in (1, 8, 50)] == [of_1, of_8, of_50]


def test_the_one_number_without_a_positive_counterpart_is_among_them() -> None:
    assert -(2**31) in [value for _, value, *_ in HASHES]
