"""An answer in the shape of its version: handlers say all that there is to say, the shape takes what it can carry."""

from __future__ import annotations

import dataclasses
from base64 import b64encode
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any

from coordinator_udf.protocol.requests import ZERO_UUID
from coordinator_udf.protocol.wire.schema import Field, Message, response_message


def answer(api: str, version: int, **values: Any) -> dict[str, Any]:
    """Returns a response body: of ``values`` those fields that the version has, the others with Kafka's defaults."""
    return _fit(response_message(api, version), values)


def _fit(message: Message, values: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for field in message.fields:
        if field.name in values:
            body[field.name] = _fit_value(field, values[field.name])
        elif field.tag is None:
            body[field.name] = _default(field)
    return body


def _fit_value(field: Field, value: Any) -> Any:
    if field.struct is None or value is None:
        return value
    if field.is_array:
        return [_fit(field.struct, element) for element in value]
    return _fit(field.struct, value)


@cache
def _default(field: Field) -> Any:
    if field.kind == "uuid" and not field.is_array:
        return ZERO_UUID
    value = field.implied
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if field.is_array and value is not None:
        return []
    if field.struct is not None and field.default is dataclasses.MISSING:
        return _fit(field.struct, {})
    return value
