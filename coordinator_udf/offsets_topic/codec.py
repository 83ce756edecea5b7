"""One reader and one writer for every struct of `messages`: bytes to and from Kafka's JSON.

The JSON is that of Kafka's own converters: bytes are base64, uuids url-safe base64 without padding, a tagged field that
has its default is left out, and so are unknown tagged fields. Malformed UTF-8 is read as Kafka reads it, with U+FFFD in
its place. So bytes that Kafka's own writer would not have written come back as others; who needs them keeps them
beside the JSON (as `rows` does).

protocol.wire, which reads and writes what comes from a network, is another codec: it has its shapes from kio, which
knows no records of the coordinator, and refuses malformed UTF-8 and arrays beyond a limit, where a record that is in
the log has to be read whatever is in it.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kio.serial import readers, writers
from kio.serial.errors import SerialError

from coordinator_udf.offsets_topic.messages import Array, Field, Struct

#: The longest text that Kafka's STRING can hold: its length has two bytes (Short.MAX_VALUE).
MAX_STRING_BYTES: Final = 32767

#: Readers and writers of numbers: kio's.
PRIMITIVES: Final[Mapping[str, tuple[Callable[..., tuple[Any, int]], Callable[..., None]]]] = {
    "int8": (readers.read_int8, writers.write_int8),
    "int16": (readers.read_int16, writers.write_int16),
    "uint16": (readers.read_uint16, writers.write_uint16),
    "int32": (readers.read_int32, writers.write_int32),
    "int64": (readers.read_int64, writers.write_int64),
}


class CodecError(ValueError):
    """Bytes or JSON that are no record of ``__consumer_offsets``; names the field, the value and what was expected."""


def decode_struct(data: bytes, start: int, of: Struct, version: int, flexible: bool) -> tuple[dict[str, Any], int]:
    """Reads a struct: its Kafka JSON and the position after it.

    Raises:
        CodecError: the bytes end too early, or null stands where it may not.
    """
    reader = _Reader(data, start, version, flexible)
    try:
        return reader.read(of), reader.at
    except (SerialError, ValueError) as error:
        where = ".".join(reader.path) or "the struct"
        raise CodecError(f"{where} can't be read at byte {reader.at} of {len(data)}: {error}") from error


def encode_struct(value: Mapping[str, Any], of: Struct, version: int, flexible: bool) -> bytes:
    """Writes a struct from its Kafka JSON.

    Raises:
        CodecError: a field is missing, is not of this version, or has a value that its type can't hold.
    """
    writer = _Writer(version, flexible)
    try:
        writer.write(value, of)
    except (struct.error, TypeError, ValueError) as error:
        where = ".".join(writer.path) or "the struct"
        raise CodecError(f"{where} can't be written: {error}") from error
    return writer.out.getvalue()


def _present(field: Field, version: int) -> bool:
    return field.since <= version <= field.until


class _Reader:
    """A position in bytes; `path` is the field that is being read, for errors."""

    def __init__(self, data: bytes, at: int, version: int, flexible: bool) -> None:
        self.data = data
        self.at = at
        self.version = version
        self.flexible = flexible
        self.path: list[str] = []

    def read(self, of: Struct) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for field in of.fields:
            if field.tag is None and _present(field, self.version):
                self.path.append(field.name)
                result[field.name] = self._value(field.type, field.nullable, tagged=False)
                self.path.pop()
        if self.flexible:
            self._tagged_fields(of, result)
        return result

    def _tagged_fields(self, of: Struct, result: dict[str, Any]) -> None:
        known = {field.tag: field for field in of.fields if field.tag is not None and _present(field, self.version)}
        for _ in range(self._varint()):
            tag = self._varint()
            size = self._varint()
            field = known.get(tag)
            if field is None:
                self._take(size)
                continue
            self.path.append(field.name)
            value = self._value(field.type, field.nullable, tagged=True)
            self.path.pop()
            # Kafka's converters leave out what has its default, also when the bytes name it.
            if value != field.implied:
                result[field.name] = value
            else:
                result.pop(field.name, None)

    def _value(self, kind: str | Array | Struct, nullable: bool, *, tagged: bool) -> Any:
        value: Any
        if isinstance(kind, Array):
            value = self._array(kind)
        elif isinstance(kind, Struct):
            value = self._maybe_struct(kind, nullable, tagged)
        elif kind == "string":
            value = self._string()
        elif kind == "bytes":
            value = self._bytes()
        elif kind == "uuid":
            return base64.urlsafe_b64encode(self._take(16))[:22].decode()
        else:
            value, size = PRIMITIVES[kind][0](self.data, self.at)
            self.at += size
        if value is None and not nullable:
            raise ValueError("it is null, which this field may not be")
        return value

    def _array(self, kind: Array) -> list[Any] | None:
        length = self._length("int32")
        if length < 0:
            return None
        if length > len(self.data) - self.at:
            raise ValueError(f"a list of {length} is announced, but only {len(self.data) - self.at} bytes are left")
        return [self._value(kind.of, nullable=False, tagged=False) for _ in range(length)]

    def _maybe_struct(self, kind: Struct, nullable: bool, tagged: bool) -> dict[str, Any] | None:
        if nullable:
            there = self._varint() > 0 if tagged else self._value("int8", nullable=False, tagged=False) >= 0
            if not there:
                return None
        elif tagged:
            self._varint()
        return self.read(kind)

    def _string(self) -> str | None:
        length = self._length("int16")
        if length > MAX_STRING_BYTES:
            raise ValueError(f"a string of {length} bytes is announced, Kafka allows {MAX_STRING_BYTES}")
        return None if length < 0 else self._take(length).decode("utf-8", "replace")

    def _bytes(self) -> str | None:
        length = self._length("int32")
        return None if length < 0 else base64.b64encode(self._take(length)).decode()

    def _length(self, classic: str) -> int:
        """Returns a length; negative is null. In flexible versions a varint of one more."""
        if self.flexible:
            return self._varint() - 1
        value, size = PRIMITIVES[classic][0](self.data, self.at)
        self.at += size
        return int(value)

    def _varint(self) -> int:
        value, size = readers.read_unsigned_varint(self.data, self.at)
        self.at += size
        # Kafka reads it into a signed int.
        return value - (1 << 32) if value >= 1 << 31 else int(value)

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError(f"{size} bytes are announced, but {len(self.data) - self.at} are left")
        taken = self.data[self.at : self.at + size]
        self.at += size
        return taken


class _Writer:
    """Bytes in the making; `path` is the field that is being written, for errors."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.out = io.BytesIO()
        self.version = version
        self.flexible = flexible
        self.path: list[str] = []

    def write(self, value: Any, of: Struct) -> None:
        if not isinstance(value, Mapping):
            raise TypeError(f"it is {value!r:.100}, expected an object")
        self._check_names(value, of)
        tagged: list[tuple[int, bytes]] = []
        for field in of.fields:
            if not _present(field, self.version):
                continue
            self.path.append(field.name)
            if field.tag is None:
                if field.name not in value:
                    raise ValueError(f"it is missing; version {self.version} has it")
                self._value(value[field.name], field.type, field.nullable, tagged=False)
            elif field.name in value and value[field.name] != field.implied:
                tagged.append((field.tag, self._aside(value[field.name], field)))
            self.path.pop()
        if self.flexible:
            self._varint(len(tagged))
            for tag, data in sorted(tagged):
                self._varint(tag)
                self._varint(len(data))
                self.out.write(data)

    def _check_names(self, value: Mapping[str, Any], of: Struct) -> None:
        names = [field.name for field in of.fields if _present(field, self.version)]
        unknown = [name for name in value if name not in names]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no field of it in version {self.version}; expected {', '.join(names)}")

    def _aside(self, value: Any, field: Field) -> bytes:
        out, self.out = self.out, io.BytesIO()
        self._value(value, field.type, field.nullable, tagged=True)
        out, self.out = self.out, out
        return out.getvalue()

    def _value(self, value: Any, kind: str | Array | Struct, nullable: bool, *, tagged: bool) -> None:
        if value is None and not nullable:
            raise ValueError(f"it is null, expected {kind if isinstance(kind, str) else 'a list or an object'}")
        if isinstance(kind, Array):
            self._array(value, kind)
        elif isinstance(kind, Struct):
            self._maybe_struct(value, kind, nullable, tagged)
        elif kind == "string":
            self._string(value)
        elif kind == "bytes":
            self._bytes(value)
        elif kind == "uuid":
            self.out.write(uuid_bytes(value))
        elif isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"it is {value!r:.100}, expected an {kind}")
        else:
            try:
                PRIMITIVES[kind][1](self.out, value)
            except struct.error as error:
                raise ValueError(f"it is {value}, which no {kind} can hold") from error

    def _array(self, value: Any, kind: Array) -> None:
        if value is None:
            self._length(-1, "int32")
            return
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise TypeError(f"it is {value!r:.100}, expected a list")
        self._length(len(value), "int32")
        for item in value:
            self._value(item, kind.of, nullable=False, tagged=False)

    def _maybe_struct(self, value: Any, kind: Struct, nullable: bool, tagged: bool) -> None:
        if tagged:
            self._varint(0 if value is None else 1)
        elif nullable:
            self.out.write(b"\xff" if value is None else b"\x01")
        if value is not None:
            self.write(value, kind)

    def _string(self, value: Any) -> None:
        if value is None:
            self._length(-1, "int16")
            return
        if not isinstance(value, str):
            raise TypeError(f"it is {value!r:.100}, expected a string")
        data = value.encode()
        if len(data) > MAX_STRING_BYTES:
            raise ValueError(f"it has {len(data)} bytes, Kafka allows a string {MAX_STRING_BYTES}")
        self._length(len(data), "int16")
        self.out.write(data)

    def _bytes(self, value: Any) -> None:
        if value is None:
            self._length(-1, "int32")
            return
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError) as error:
            raise ValueError(f"it is {value!r:.100}, expected base64: {error}") from error
        self._length(len(data), "int32")
        self.out.write(data)

    def _length(self, length: int, classic: str) -> None:
        if self.flexible:
            self._varint(length + 1)
        else:
            PRIMITIVES[classic][1](self.out, length)

    def _varint(self, value: int) -> None:
        writers.write_unsigned_varint(self.out, value)  # type: ignore[arg-type]


def uuid_bytes(text: Any) -> bytes:
    """Returns the 16 bytes of a uuid in Kafka's url-safe base64 (22 characters, no padding).

    Raises:
        ValueError: it is none.
    """
    try:
        return uuid.UUID(bytes=base64.b64decode(f"{text}==", altchars=b"-_", validate=True)).bytes
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"it is {text!r:.100}, expected a uuid as 22 characters of url-safe base64") from error
