"""The keys by which Spark spreads shards over its tasks: numbers whose hashes are spread as evenly as can be.

Spark puts a key on the task that its hash says, and the hashes of a few small numbers are of no even spread: 0 to 7 lie
3 to 5 on two tasks, so that one core waits for the other. A shard's key is its partition and above it a number that
makes the hash fit. The key doesn't depend on how many tasks there are, for that is not known here and a shard's state
is found by its key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

#: The remainder of a key's hash by this is the partition's. So shards are spread evenly over any number of tasks that
#: divides it: all to 8, and 10, 12, 14, 15, 16.
_EVEN: Final = 1_680

_PARTITION_BITS: Final = 32
#: With it Spark's hash() begins.
_SEED: Final = 42
#: So many salts are tried at once. One in `_EVEN` fits, so among these none does for one partition in 300 million, and
#: among half as many for one in 17,000, which tries as many again.
_TRIED_AT_ONCE: Final = 1 << 15


@lru_cache(maxsize=4_096)
def shard_key(partition: int) -> int:
    """Returns the key of a partition's shard, 64 bits; the same for all times."""
    first = 0
    while True:
        salts = np.arange(first, first + _TRIED_AT_ONCE, dtype=np.uint32)
        fits = spark_hash(partition, salts).astype(np.int64) % _EVEN == partition % _EVEN
        if fits.any():
            return int(salts[fits.argmax()]) << _PARTITION_BITS | partition
        first += _TRIED_AT_ONCE


def partition_of(key: int) -> int:
    """Returns the partition of a shard's key."""
    return key & ((1 << _PARTITION_BITS) - 1)


def spark_hash(low: int, high: np.ndarray) -> np.ndarray:
    """Returns Spark's hash (Murmur3, 32 bits) of 64-bit numbers, given as their halves, the high ones unsigned."""
    with np.errstate(over="ignore"):
        mixed = _mixed(_mixed(np.full_like(high, _SEED), np.full_like(high, low)), high)
        mixed ^= np.uint32(8)
        mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    hashed: np.ndarray = (mixed ^ (mixed >> np.uint32(16))).view(np.int32)
    return hashed


def _mixed(hashed: np.ndarray, word: np.ndarray) -> np.ndarray:
    word = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(hashed ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated(word: np.ndarray, bits: int) -> np.ndarray:
    return (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))
