"""Reads bytes as Java's clients write them into what a coordinator passes on unread."""

from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

_SIZES: Final = {"b": 1, "h": 2, "i": 4, "q": 8}


class MalformedBytes(ValueError):
    """Bytes that are not what they are taken for."""


class JavaBytes:
    """Bytes that are read from their beginning on.

    Args:
        what: what they should be, for errors.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._place = 0
        self.what = what

    @property
    def left(self) -> int:
        """How many bytes are still to be read."""
        return len(self._data) - self._place

    def take(self, size: int) -> bytes:
        """Returns the next bytes.

        Raises:
            MalformedBytes: there are not so many.
        """
        if size < 0 or size > self.left:
            raise MalformedBytes(f"{self.what} ends at byte {len(self._data)}, where {size} more were expected")
        start, self._place = self._place, self._place + size
        return self._data[start : self._place]

    def number(self, kind: str) -> int:
        """Returns a whole number, b, h, i or q as `struct` calls them."""
        value: int = struct.unpack(f">{kind}", self.take(_SIZES[kind]))[0]
        return value

    def count(self, least: int, *, nullable: bool = False) -> int:
        """Returns how many items follow, of at least so many bytes each; 0 for null.

        Raises:
            MalformedBytes: so many can't be there.
        """
        count = self.number("i")
        if count == -1 and nullable:
            return 0
        if count < 0 or count * least > self.left:
            raise MalformedBytes(f"{self.what} names {count} items where {self.left} bytes are left")
        return count

    def string(self) -> str:
        """Returns a text behind its length in two bytes (Kafka's STRING, Java's writeUTF)."""
        raw = self.take(self.number("h"))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise MalformedBytes(f"{self.what} has a text that is not UTF-8: {error}") from error

    def chars(self) -> str:
        """Returns a text of two bytes a character behind its length in four (Java's writeChars)."""
        return self.take(2 * self.count(2)).decode("utf-16-be", errors="replace")

    def nullable_bytes(self) -> bytes | None:
        """Reads bytes behind their length in four; None for null."""
        size = self.number("i")
        return None if size == -1 else self.take(size)

    def uuid(self) -> UUID:
        """Returns a UUID of 16 bytes."""
        return UUID(bytes=self.take(16))
