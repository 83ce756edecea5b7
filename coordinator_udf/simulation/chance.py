"""Random numbers that depend on the time alone, so that they are the same however much happened before."""

from __future__ import annotations

import zlib
from functools import lru_cache


def drawn_by_time(salt: int, name: str, now_ms: int) -> int:
    """Returns a number of 32 bits that looks drawn, and is the same for the same time and name."""
    mixed = now_ms * 0x9E3779B1 ^ salt * 0x85EBCA6B ^ _number_of(name)
    mixed = (mixed ^ mixed >> 15) * 0x2C1B3C6D & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 12) * 0x297A2D39 & 0xFFFFFFFF
    return mixed ^ mixed >> 15


@lru_cache(maxsize=4096)
def _number_of(name: str) -> int:
    return zlib.crc32(name.encode())
