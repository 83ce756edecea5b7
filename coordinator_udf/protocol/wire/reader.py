"""From bytes to Kafka's JSON. It comes from a network: nothing in it is believed before it is checked."""

from __future__ import annotations

import re
import struct
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from coordinator_udf.protocol.requests import ZERO_UUID
from coordinator_udf.protocol.wire.schema import Field, Message

#: The most array elements that one message may have, all its arrays together: it bounds the memory that a frame of
#: small elements blows up to. Measured with the smallest topics of an OffsetFetch: 0.6 MB of them take 50 MB and 0.6 s
#: of CPU, half as many 25 MB and 0.3 s, twice as many 99 MB and 1 s, in which nobody else is served.
MAX_ELEMENTS: Final = 200_000

_VARINT_BYTES: Final = 5

#: The longest string. Source: the readers that Kafka's MessageDataGenerator makes, which refuse lengths over 0x7fff.
_TEXT_BYTES_MAX: Final = 2**15 - 1
#: A character takes so many bytes at the most.
_UTF8_BYTES_MAX: Final = 4

#: A half of a surrogate pair as UTF-8 would write it, and what Java reads in its place.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\ufffd".encode()


class MalformedFrame(ValueError):
    """Bytes that are no message of their API and version; the text says where and why."""


class Cursor:
    """A place in a frame, moved on by every read."""

    __slots__ = ("data", "elements_left", "end", "pos")

    def __init__(self, data: bytes, pos: int = 0, max_elements: int = MAX_ELEMENTS) -> None:
        self.data = data
        self.pos = pos
        self.end = len(data)
        self.elements_left = max_elements

    def advance(self, size: int) -> int:
        """Steps over ``size`` bytes and says where they began."""
        start = self.pos
        if size < 0 or size > self.end - start:
            raise MalformedFrame(f"{size} bytes are announced at byte {start}, where {self.end - start} are left")
        self.pos = start + size
        return start

    def unsigned_varint(self) -> int:
        """Returns Kafka's unsigned varint: seven bits a byte, the lowest first."""
        value = 0
        for i in range(_VARINT_BYTES):
            byte = self.data[self.advance(1)]
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                return value
        raise MalformedFrame(f"a varint at byte {self.pos - _VARINT_BYTES} has more than {_VARINT_BYTES} bytes")

    def claim(self, elements: int) -> int:
        """Checks the number of elements that an array claims to have: each takes at least one byte."""
        if elements > self.end - self.pos or elements > self.elements_left:
            raise MalformedFrame(
                f"an array at byte {self.pos} claims {elements} elements; {self.end - self.pos} bytes and "
                f"{self.elements_left} elements of the limit are left"
            )
        self.elements_left -= elements
        return elements

    def skip_tags(self) -> None:
        """Steps over tagged fields, whatever they are."""
        for _ in range(self.unsigned_varint()):
            self.unsigned_varint()
            self.advance(self.unsigned_varint())


Read = Callable[[Cursor], Any]


def decode(message: Message, data: bytes, pos: int = 0, max_elements: int = MAX_ELEMENTS) -> dict[str, Any]:
    """Reads one message.

    Args:
        message: its shape.
        data: a frame without its length.
        pos: where in it the message begins. What follows it is ignored, as Kafka does.
        max_elements: the most array elements that it may have, all its arrays together.

    Returns:
        The message in Kafka's JSON field names.

    Raises:
        MalformedFrame: the bytes are no such message.
    """
    body: dict[str, Any] = _struct(message)(Cursor(data, pos, max_elements))
    return body


def _fixed(layout: str) -> Read:
    unpack = struct.Struct(layout)
    size = unpack.size

    def read(cursor: Cursor) -> Any:
        return unpack.unpack_from(cursor.data, cursor.advance(size))[0]

    return read


_int8, _int16, _int32 = _fixed(">b"), _fixed(">h"), _fixed(">i")


def _uuid(cursor: Cursor) -> str:
    start = cursor.advance(16)
    return urlsafe_b64encode(cursor.data[start : start + 16]).decode().rstrip("=")


#: int64s stay numbers whatever they mean: Python's times can't hold all of Kafka's.
_FIXED: Final[dict[str, Read]] = {
    "bool": lambda cursor: cursor.data[cursor.advance(1)] != 0,
    "int8": _int8,
    "int16": _int16,
    "uint16": _fixed(">H"),
    "int32": _int32,
    "int64": _fixed(">q"),
    "float64": _fixed(">d"),
    "error_code": _int16,
    "timedelta_i32": _int32,
    "timedelta_i64": _fixed(">q"),
    "datetime_i64": _fixed(">q"),
    "uuid": _uuid,
}


def _length(flexible: bool, narrow: bool) -> Callable[[Cursor], int]:
    if flexible:
        return lambda cursor: cursor.unsigned_varint() - 1
    return _int16 if narrow else _int32


def read_text(data: bytes) -> str:
    """Returns text as Java decodes UTF-8: each part that is none becomes U+FFFD, half a surrogate pair one."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def _text(cursor: Cursor, size: int) -> str:
    # The older encoding has no room for longer ones, so an answer in it couldn't repeat them.
    if size > _TEXT_BYTES_MAX:
        raise MalformedFrame(f"a string at byte {cursor.pos} has {size} bytes, expected {_TEXT_BYTES_MAX} at the most")
    start = cursor.advance(size)
    text = read_text(cursor.data[start : start + size])
    if len(text) * _UTF8_BYTES_MAX > _TEXT_BYTES_MAX and len(text.encode()) > _TEXT_BYTES_MAX:
        raise MalformedFrame(f"the string at byte {start} is not UTF-8, and too long with what stands for that")
    return text


def _blob(cursor: Cursor, size: int) -> str:
    start = cursor.advance(size)
    return b64encode(cursor.data[start : start + size]).decode()


def _sized(field: Field, flexible: bool) -> Read:
    is_text = field.kind == "string"
    length = _length(flexible, narrow=is_text)
    content = _text if is_text else _blob
    # In an array the null is the array's.
    nullable = field.nullable and not field.is_array
    name = field.name

    def read(cursor: Cursor) -> str | None:
        size = length(cursor)
        if size < 0:
            if nullable:
                return None
            raise MalformedFrame(f"{name} at byte {cursor.pos} is null, which it must not be")
        return content(cursor, size)

    return read


def _array(element: Read, field: Field, flexible: bool) -> Read:
    length = _length(flexible, narrow=False)
    name, nullable = field.name, field.nullable

    def read(cursor: Cursor) -> list[Any] | None:
        size = length(cursor)
        if size < 0:
            if nullable:
                return None
            raise MalformedFrame(f"{name} at byte {cursor.pos} is null, which it must not be")
        return [element(cursor) for _ in range(cursor.claim(size))]

    return read


def _nullable_struct(read_struct: Read) -> Read:
    def read(cursor: Cursor) -> Any:
        return None if _int8(cursor) < 0 else read_struct(cursor)

    return read


def _field(field: Field, flexible: bool) -> Read:
    if field.struct is not None:
        read = _struct(field.struct)
        if field.nullable and not field.is_array:
            read = _nullable_struct(read)
    elif field.kind in _FIXED:
        read = _FIXED[field.kind]
    else:
        read = _sized(field, flexible)
    return _array(read, field, flexible) if field.is_array else read


@cache
def _struct(message: Message) -> Read:
    plain = tuple((f.name, _field(f, message.flexible)) for f in message.fields if f.tag is None)
    tagged = {f.tag: (f, _field(f, message.flexible)) for f in message.fields if f.tag is not None}
    order = tuple(f.name for f in message.fields)

    def read_tags(cursor: Cursor, body: dict[str, Any]) -> dict[str, Any]:
        for _ in range(cursor.unsigned_varint()):
            tag, size = cursor.unsigned_varint(), cursor.unsigned_varint()
            start = cursor.advance(size)
            if tag not in tagged:
                continue
            cursor.pos = start
            field, read = tagged[tag]
            value = read(cursor)
            if cursor.pos != start + size:
                raise MalformedFrame(f"{field.name} at byte {start} takes {cursor.pos - start} bytes of its {size}")
            if value != _implied(field):
                body[field.name] = value
        return {name: body[name] for name in order if name in body} if tagged else body

    def read(cursor: Cursor) -> dict[str, Any]:
        body = {name: read_field(cursor) for name, read_field in plain}
        return read_tags(cursor, body) if message.flexible else body

    return read


def _implied(field: Field) -> Any:
    """Returns the JSON of a tagged field's default, with which it is neither on the wire nor in the JSON."""
    value = field.implied
    if field.kind == "uuid" and not field.is_array:
        return ZERO_UUID
    if isinstance(value, tuple):
        return []
    return b64encode(value).decode() if isinstance(value, bytes) else value
