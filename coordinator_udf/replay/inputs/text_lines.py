"""Lines of a text file, plain, gzip, bzip2, xz or zstd, that may be damaged: what can be read is, the rest is said."""

from __future__ import annotations

import bz2
import codecs
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol

import zstandard

from coordinator_udf.replay.recording import Rejection, clip
from coordinator_udf.user_errors import InputError

GZIP_MAGIC = b"\x1f\x8b"
#: How much of a file is read at once. Measured with 25 MiB of a broker's log, plain and gzip (CPU time, the best of
#: three): 24 and 44 ms, with half as much alike, with double 26 and 42.
_CHUNK_BYTES = 1 << 20
#: zlib's window bits for a gzip header and trailer.
_GZIP_WINDOW = 31
#: What Windows' PowerShell writes where a program's output is put in a file.
_UTF16_BOMS: Final = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

#: The words of the rejection that says that a file breaks off; no other has them.
_BREAKS_OFF: Final = "breaks off"


class Line(NamedTuple):
    """One line, numbered from 1, without its end."""

    number: int
    text: str


def read_lines(path: Path) -> Iterator[Line | Rejection]:
    """Yields the lines that are not blank; a rejection for each that is not UTF-8, and one where the file breaks off.

    Raises:
        InputError: there is no such file, or it can't be read.
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
            f"{path.name} {_BREAKS_OFF} after line {number}: {error}; what came before it was read",
            raw=clip(rest.decode("utf-8", "backslashreplace")),
        )
        return
    if rest.strip():
        yield _line(path, number + 1, rest)


def broken_off(rejection: Rejection) -> str | None:
    """Returns how a file breaks off, if that is what was rejected; None if it was a line."""
    return rejection.reason if _BREAKS_OFF in rejection.reason else None


def read_all_lines(paths: Sequence[Path]) -> Iterator[Line | Rejection]:
    """Yields the lines of several files, one after the other, numbered as if they were one.

    Raises:
        InputError: as `read_lines`.
    """
    before = 0
    for path in paths:
        last = 0
        for line in read_lines(path):
            if isinstance(line, Line):
                last = line.number
                yield Line(before + line.number, line.text)
            else:
                yield line
        before += last


class _BrokenOffError(Exception):
    """A compressed stream that ends early or is damaged, or a file that can't be read to its end."""


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
        try:
            first = file.read(_CHUNK_BYTES)
        except OSError as error:
            raise InputError(f"{path} can't be read: {error.strerror}") from error
        kind = next((kind for magic, kind in _INFLATERS.items() if first.startswith(magic)), None)
        yield from _in_utf8(_plain(first, file) if kind is None else _inflated(first, file, kind))


def _plain(data: bytes, file: IO[bytes]) -> Iterator[bytes]:
    while data:
        yield data
        data = _more(file)


def _more(file: IO[bytes]) -> bytes:
    try:
        return file.read(_CHUNK_BYTES)
    except OSError as error:
        raise _BrokenOffError(f"it can't be read any further ({error.strerror})") from error


def _in_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields UTF-16 text, by its byte order mark, in UTF-8; other text as it is, without such a mark."""
    first = next(chunks, b"")
    encoding = next((name for bom, name in _UTF16_BOMS.items() if first.startswith(bom)), None)
    if encoding is None:
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first[2:]).encode()
    for chunk in chunks:
        yield decoder.decode(chunk).encode()
    yield decoder.decode(b"", final=True).encode()


class _Inflater(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


class _Kind(NamedTuple):
    name: str
    make: Callable[[], _Inflater]
    errors: tuple[type[Exception], ...]


_INFLATERS: Final = {
    GZIP_MAGIC: _Kind("gzip", lambda: zlib.decompressobj(_GZIP_WINDOW), (zlib.error,)),
    b"BZh": _Kind("bzip2", bz2.BZ2Decompressor, (OSError, ValueError)),
    b"\xfd7zXZ\x00": _Kind("xz", lzma.LZMADecompressor, (lzma.LZMAError,)),
    b"\x28\xb5\x2f\xfd": _Kind("zstd", lambda: zstandard.ZstdDecompressor().decompressobj(), (zstandard.ZstdError,)),
}


def _inflated(data: bytes, file: IO[bytes], kind: _Kind) -> Iterator[bytes]:
    inflater = kind.make()
    while data:
        try:
            yield inflater.decompress(data)
        except kind.errors as error:
            raise _BrokenOffError(f"its {kind.name} stream is damaged ({error})") from error
        # Such a file may hold several members, one after the other.
        if inflater.eof:
            data = inflater.unused_data or _more(file)
            inflater = kind.make() if data else inflater
        else:
            data = _more(file)
    if not inflater.eof:
        raise _BrokenOffError(f"its {kind.name} stream ends before its end mark, so the file is truncated")
