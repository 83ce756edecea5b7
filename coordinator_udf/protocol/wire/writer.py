"""From Kafka's JSON to bytes. The bytes are written by kio; here its dataclasses are filled."""

from __future__ import annotations

import dataclasses
import io
import struct
import uuid
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial.errors import SerialError

from coordinator_udf.protocol.wire.schema import Field, Message

_MILLISECOND: Final = timedelta(milliseconds=1)


class EncodeError(ValueError):
    """A body that is no message of its API and version; the text names the field, its value and what was expected."""


class _Expected(ValueError):
    """A value isn't what its text says; where it stands is added further up."""


def encode(message: Message, body: Mapping[str, Any]) -> bytes:
    """Writes one message.

    Args:
        message: its shape.
        body: the message in Kafka's JSON field names. Tagged fields and those with a default may be left out.

    Raises:
        EncodeError: a field is missing, unknown in this version, or of a wrong type or size.
    """
    buffer = io.BytesIO()
    try:
        entity_writer(message.entity)(buffer, _fill(message)(body))
    except EncodeError:
        raise
    except (SerialError, struct.error, ValueError, TypeError, OverflowError) as error:
        raise EncodeError(f"{message.name} can't be written: {error}") from error
    return buffer.getvalue()


Convert = Callable[[Any], Any]


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Expected("a whole number")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _Expected("text")
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Expected("true or false")
    return value


def _float(value: Any) -> float:
    if not isinstance(value, float | int) or isinstance(value, bool):
        raise _Expected("a number")
    return float(value)


def _bytes(value: Any) -> bytes:
    try:
        return b64decode(_string(value), validate=True)
    except ValueError:
        raise _Expected("base64") from None


def _uuid(value: Any) -> uuid.UUID | None:
    try:
        raw = urlsafe_b64decode(_string(value) + "==")
        return uuid.UUID(bytes=raw) if any(raw) else None
    except ValueError:
        raise _Expected("the url-safe base64 of 16 bytes") from None


def _duration(value: Any) -> timedelta:
    return _whole(value) * _MILLISECOND


def _time(value: Any) -> datetime | None:
    millis = _whole(value)
    return None if millis < 0 else datetime.fromtimestamp(0, UTC) + millis * _MILLISECOND


def _error_code(value: Any) -> ErrorCode:
    try:
        return ErrorCode(_whole(value))
    except ValueError:
        raise _Expected("an error code of Kafka") from None


_CONVERT: Final[dict[str, Convert]] = {
    "bool": _bool,
    "int8": _whole,
    "int16": _whole,
    "uint16": _whole,
    "int32": _whole,
    "int64": _whole,
    "float64": _float,
    "error_code": _error_code,
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
    "datetime_i64": _time,
    "uuid": _uuid,
    "string": _string,
    "bytes": _bytes,
    "records": _bytes,
}


def _field(field: Field) -> Convert:
    one = _CONVERT[field.kind] if field.struct is None else _fill(field.struct)
    # A tagged field is null by not being there, a uuid by being zero.
    nullable = field.nullable and field.kind != "uuid"

    def convert(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise _Expected("not null")
        if not field.is_array:
            return one(value)
        if not isinstance(value, list | tuple):
            raise _Expected("an array")
        return tuple(one(element) for element in value)

    return convert


@cache
def _fill(message: Message) -> Convert:
    fields = {f.name: (f, _field(f)) for f in message.fields}
    required = {f.name for f in message.fields if f.default is dataclasses.MISSING and f.tag is None}
    implied = {f.attribute: f.implied for f in message.fields if f.tag is not None}

    def fill(body: Any) -> Any:
        if not isinstance(body, Mapping):
            raise _Expected("an object")
        if not required <= body.keys():
            missing = ", ".join(sorted(required - body.keys()))
            raise EncodeError(f"{message.name} lacks {missing}; give every field of that version")
        values = dict(implied)
        for name, value in body.items():
            if name not in fields:
                raise EncodeError(f"{message.name} has no field {name}; leave out what that version can't carry")
            field, convert = fields[name]
            try:
                values[field.attribute] = convert(value)
            except _Expected as error:
                raise EncodeError(f"{name} of {message.name} is {value!r}, expected {error}") from None
        return message.entity(**values)

    return fill
