"""A frame: what stands on the wire between one length and the next. Header and body, of requests and of responses."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec
from kio.index import KioIndexError

from coordinator_udf.protocol.wire.reader import Cursor, MalformedFrame, decode, read_text
from coordinator_udf.protocol.wire.schema import API_KEYS, KEYS_BY_NAME, request_message, response_message
from coordinator_udf.protocol.wire.writer import encode

_REQUEST_START: Final = struct.Struct(">hhih")
_LENGTH: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\x00"

#: A body in JSON that is no longer may well be that of many responses: of heartbeats all but few. Measured: 0.2 us for
#: a heartbeat's (34 characters) that was written before, 4.6 for one that is new. With half heartbeats don't fit; what
#: double adds (commits with their topics) is of one member each.
_SHORT_TEXT: Final = 64


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of a request.

    Attributes:
        api: Kafka's name of the API; None for a key that isn't known here.
        body_at: where in the frame the body begins.
    """

    api_key: int
    api: str | None
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def read_request_header(frame: bytes) -> RequestHeader:
    """Reads the header of a request's frame (without its length).

    The tagged fields of a flexible header are stepped over only where the version is known, as nothing else tells
    whether there are any; a caller answers an unknown version without reading the body.

    Raises:
        MalformedFrame: it is cut short.
    """
    if len(frame) < _REQUEST_START.size:
        raise MalformedFrame(f"{len(frame)} bytes are no header, which has {_REQUEST_START.size} at the least")
    api_key, version, correlation_id, size = _REQUEST_START.unpack_from(frame)
    at = _REQUEST_START.size
    client_id = None
    if size >= 0:
        if size > len(frame) - at:
            raise MalformedFrame(f"{size} bytes are announced at byte {at}, where {len(frame) - at} are left")
        client_id = read_text(frame[at : at + size])
        at += size
    api, is_flexible = _known(api_key, version)
    if is_flexible:
        cursor = Cursor(frame, at)
        cursor.skip_tags()
        at = cursor.pos
    return RequestHeader(api_key, api, version, correlation_id, client_id, at)


@lru_cache(maxsize=4_096)
def _known(api_key: int, version: int) -> tuple[str | None, bool]:
    """Returns the API of a key, and whether the header of this version of it has tagged fields."""
    api = API_KEYS.get(api_key)
    return api, api is not None and _is_flexible_request(api, version)


def _is_flexible_request(api: str, version: int) -> bool:
    try:
        return request_message(api, version).flexible
    except KioIndexError:
        return False


def response_bytes(api: str, version: int, correlation_id: int, body: Mapping[str, Any]) -> bytes:
    """Returns a response as it goes over the wire, its length first.

    Raises:
        EncodeError: the body is no response of that API and version.
    """
    message = response_message(api, version)
    content = encode(message, body)
    # An ApiVersions answer never has the flexible header: its reader may not know the version yet (KIP-511).
    tags = _NO_TAGS if message.flexible and api != "ApiVersions" else b""
    size = 4 + len(tags) + len(content)
    return b"".join((_LENGTH.pack(size), _LENGTH.pack(correlation_id), tags, content))


def told_response_bytes(api: str, version: int, correlation_id: int, text: str) -> bytes:
    """Returns a response as it goes over the wire, of a body in JSON.

    Short ones are written once for all that say the same.

    Raises:
        EncodeError: the body is no response of that API and version.
    """
    if len(text) > _SHORT_TEXT:
        return response_bytes(api, version, correlation_id, msgspec.json.decode(text))
    before, after = _around_correlation_id(api, version, text)
    return b"".join((before, _LENGTH.pack(correlation_id), after))


@lru_cache(maxsize=1_024)
def _around_correlation_id(api: str, version: int, text: str) -> tuple[bytes, bytes]:
    data = response_bytes(api, version, 0, msgspec.json.decode(text))
    return data[: _LENGTH.size], data[2 * _LENGTH.size :]


def request_bytes(api: str, version: int, correlation_id: int, client_id: str | None, body: Mapping[str, Any]) -> bytes:
    """Returns a request as it goes over the wire, its length first; what a client would send.

    Raises:
        EncodeError: the body is no request of that API and version.
    """
    message = request_message(api, version)
    client = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(client)
    start = _REQUEST_START.pack(KEYS_BY_NAME[api], version, correlation_id, size)
    content = b"".join((start, client, _NO_TAGS if message.flexible else b"", encode(message, body)))
    return _LENGTH.pack(len(content)) + content


def split_response(api: str, version: int, frame: bytes) -> tuple[int, dict[str, Any]]:
    """Returns the correlation id and the body of a response's frame (without its length).

    It may have as many elements as it has bytes: it comes from a broker that was asked, and clusters are large.

    Raises:
        MalformedFrame: it is no response of that API and version.
    """
    message = response_message(api, version)
    cursor = Cursor(frame)
    (correlation_id,) = _LENGTH.unpack_from(frame, cursor.advance(_LENGTH.size))
    if message.flexible and api != "ApiVersions":
        cursor.skip_tags()
    return correlation_id, decode(message, frame, cursor.pos, len(frame))
