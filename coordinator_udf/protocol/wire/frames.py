"""A frame: what stands on the wire between one length and the next. Header and body, of requests and of responses."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kio.index import KioIndexError

from coordinator_udf.protocol.wire.reader import Cursor, MalformedFrame, decode
from coordinator_udf.protocol.wire.schema import API_KEYS, KEYS_BY_NAME, request_message, response_message
from coordinator_udf.protocol.wire.writer import encode

_REQUEST_START: Final = struct.Struct(">hhi")
_CLIENT_ID_SIZE: Final = struct.Struct(">h")
_LENGTH: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\x00"


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
        MalformedFrame: it is cut short, or the client id is no text.
    """
    cursor = Cursor(frame)
    api_key, version, correlation_id = _REQUEST_START.unpack_from(frame, cursor.advance(_REQUEST_START.size))
    (size,) = _CLIENT_ID_SIZE.unpack_from(frame, cursor.advance(_CLIENT_ID_SIZE.size))
    client_id = None
    if size >= 0:
        start = cursor.advance(size)
        try:
            client_id = frame[start : start + size].decode()
        except UnicodeDecodeError as error:
            raise MalformedFrame(f"the client id at byte {start} is not UTF-8: {error.reason}") from None
    api = API_KEYS.get(api_key)
    if api is not None and _is_flexible_request(api, version):
        cursor.skip_tags()
    return RequestHeader(api_key, api, version, correlation_id, client_id, cursor.pos)


def _is_flexible_request(api: str, version: int) -> bool:
    try:
        return request_message(api, version).flexible
    except KioIndexError:
        return False


def response_bytes(api: str, version: int, correlation_id: int, body: Mapping[str, Any]) -> bytes:
    """A response as it goes over the wire, its length first.

    Raises:
        EncodeError: the body is no response of that API and version.
    """
    message = response_message(api, version)
    content = encode(message, body)
    # An ApiVersions answer never has the flexible header: its reader may not know the version yet (KIP-511).
    tags = _NO_TAGS if message.flexible and api != "ApiVersions" else b""
    size = 4 + len(tags) + len(content)
    return b"".join((_LENGTH.pack(size), _LENGTH.pack(correlation_id), tags, content))


def request_bytes(api: str, version: int, correlation_id: int, client_id: str | None, body: Mapping[str, Any]) -> bytes:
    """A request as it goes over the wire, its length first; what a client would send.

    Raises:
        EncodeError: the body is no request of that API and version.
    """
    message = request_message(api, version)
    start = _REQUEST_START.pack(KEYS_BY_NAME[api], version, correlation_id)
    client = b"\xff\xff" if client_id is None else _CLIENT_ID_SIZE.pack(len(client_id.encode())) + client_id.encode()
    content = b"".join((start, client, _NO_TAGS if message.flexible else b"", encode(message, body)))
    return _LENGTH.pack(len(content)) + content


def split_response(api: str, version: int, frame: bytes) -> tuple[int, dict[str, Any]]:
    """The correlation id and the body of a response's frame (without its length).

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
