"""Arrays of numbers in a state row: those of one lie near each other, so each is kept as what it is above the least."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

_SIZES: Final = (1, 2, 4, 8)
#: The bytes of each number, and the least number.
_HEAD: Final = struct.Struct("<Bq")


def pack_numbers(numbers: np.ndarray) -> bytes:
    """Packs numbers of 64 bits into as few bytes each as the difference of the greatest and the least takes."""
    if len(numbers) == 0:
        return b""
    least, greatest = int(numbers.min()), int(numbers.max())
    size = next(size for size in _SIZES if greatest - least < 1 << 8 * size)
    return _HEAD.pack(size, least) + (numbers - least).astype(f"<u{size}").tobytes()


def unpack_numbers(data: bytes) -> np.ndarray:
    """Returns what `pack_numbers` was given, in an array that can be changed."""
    if not data:
        return np.zeros(0, np.int64)
    size, least = _HEAD.unpack_from(data)
    numbers: np.ndarray = np.frombuffer(data, f"<u{size}", offset=_HEAD.size).astype(np.int64) + least
    return numbers
