from __future__ import annotations

import numpy as np
import pytest

from coordinator_udf.shard.sessions.numbers import pack_numbers, unpack_numbers


@pytest.mark.parametrize(
    ("numbers", "bytes_each"),
    [
        ([], 0),
        ([7], 1),
        ([1_700_000_000_000, 1_700_000_000_255], 1),
        ([1_700_000_000_256, 1_700_000_000_000], 2),
        ([5, 70_000, 2**32 + 4], 4),
        ([5, 2**32 + 5], 8),
        ([-3, 4], 1),
        ([0, 2**63 - 1], 8),
        ([-(2**63), 2**63 - 1], 8),
    ],
)
def test_numbers_come_back_and_take_as_few_bytes_as_their_distances_do(numbers: list[int], bytes_each: int) -> None:
    packed = pack_numbers(np.array(numbers, np.int64))
    assert unpack_numbers(packed).tolist() == numbers
    assert len(packed) == bytes_each * len(numbers) + (9 if numbers else 0)
