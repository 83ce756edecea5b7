"""The shape of answers: which fields an API's answer carries in a version, in Kafka's order (protocol.wire.schema)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from coordinator_udf.protocol.requests import VERSIONS
from coordinator_udf.protocol.wire.schema import Message, response_message

#: The fields of one version in order, each with the shape of its elements where it is a list of structs, or None.
Shape = tuple[tuple[str, Any], ...]


@cache
def shape(api: str, api_version: int) -> Shape:
    """Returns the fields of one version's answer.

    Raises:
        KeyError: the API is none of `VERSIONS`.
    """
    if api not in VERSIONS:
        raise KeyError(api)
    return _shape(response_message(api, api_version))


def _shape(message: Message) -> Shape:
    return tuple(
        (field.name, _shape(field.struct) if field.struct is not None and field.is_array else None)
        for field in message.fields
        if not field.is_extension
    )


@cache
def extension_fields(api: str, api_version: int) -> frozenset[str]:
    """Returns the fields of one version's answer that Kafka hasn't got, at whatever depth.

    An answer has them only with a value to tell.
    """
    return frozenset(_extensions(response_message(api, api_version)))


def _extensions(message: Message) -> Iterator[str]:
    for field in message.fields:
        if field.is_extension:
            yield field.name
        elif field.struct is not None:
            yield from _extensions(field.struct)
