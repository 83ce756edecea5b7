from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from coordinator_udf.streaming.shard_keys import partition_of, shard_key, spark_hash


def task_of(key: int, tasks: int) -> int:
    return int(spark_hash(partition_of(key), np.array([key >> 32], np.uint32))[0]) % tasks


def test_a_key_names_its_partition() -> None:
    for partition in (0, 1, 7, 1_679, 1_680, 100_000, 2**31 - 1):
        assert partition_of(shard_key(partition)) == partition
        assert 0 <= shard_key(partition) < 2**63


@pytest.mark.parametrize("tasks", [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15, 16])
@pytest.mark.parametrize("partitions", [8, 16, 50])
def test_shards_are_spread_evenly(partitions: int, tasks: int) -> None:
    counts = Counter(task_of(shard_key(partition), tasks) for partition in range(partitions))
    sizes = [counts[task] for task in range(tasks)]
    assert max(sizes) - min(sizes) <= 1


def test_keys_stay_what_they_are() -> None:
    """A shard's state is found by its key."""
    assert [shard_key(partition) for partition in range(8)] == [
        2211908157440, 1533303324673, 10853382356994, 1146756268035,
        1868310773764, 3607772528645, 5373004087302, 27912992456711,
    ]  # fmt: skip
