"""Lines of a text file, plain or gzip, that may be damaged: what can be read is, the rest is said."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from coordinator_udf.replay.recording import Rejection, clip
from coordinator_udf.user_errors import InputError

GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20
#: zlib's window bits for a gzip header and trailer.
_GZIP_WINDOW = 31


class Line(NamedTuple):
    """One line, numbered from 1, without its end."""

    number: int
    text: str


def read_lines(path: Path) -> Iterator[Line | Rejection]:
    """The lines that are not blank; a rejection for each that is not UTF-8, and one where the file breaks off.

    Raises:
        InputError: there is no such file, or it can't be opened.
    """
    number, rest = 0, b""
    try:
        for chunk in _chunks(path):
            *lines, rest = (rest + chunk).split(b"\n")
            for raw in lines:
                number += 1
                if raw.strip():
                    yield _line(path, number, raw)
    except _BrokenOffError as error:
        yield Rejection(
            f"{path.name} breaks off after line {number}: {error}; what came before it was read",
            raw=clip(rest.decode("utf-8", "backslashreplace")),
        )
        return
    if rest.strip():
        yield _line(path, number + 1, rest)


class _BrokenOffError(Exception):
    """A gzip stream that ends early or is damaged."""


def _line(path: Path, number: int, raw: bytes) -> Line | Rejection:
    try:
        return Line(number, raw.decode("utf-8").rstrip("\r"))
    except UnicodeDecodeError as error:
        reason = f"{path.name} line {number} is not UTF-8 at byte {error.start}, expected JSON text in UTF-8"
        return Rejection(reason, raw=clip(raw.decode("utf-8", "backslashreplace")))


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from error
    with file:
        first = file.read(_CHUNK_BYTES)
        if not first.startswith(GZIP_MAGIC):
            while first:
                yield first
                first = file.read(_CHUNK_BYTES)
            return
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        data = first
        while data:
            try:
                yield inflater.decompress(data)
            except zlib.error as error:
                raise _BrokenOffError(f"its gzip stream is damaged ({error})") from error
            # A gzip file may hold several members, one after the other.
            if inflater.eof and inflater.unused_data:
                data, inflater = inflater.unused_data, zlib.decompressobj(_GZIP_WINDOW)
            else:
                data = file.read(_CHUNK_BYTES)
        if not inflater.eof:
            raise _BrokenOffError("its gzip stream ends before its end mark, so the file is truncated")
