"""Puts the gateway's addresses where a broker's answer names its own and its neighbours'."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from coordinator_udf.gateway.upstream.cluster_state import Broker
from coordinator_udf.protocol.wire import response_bytes, split_response
from coordinator_udf.protocol.wire.reader import Cursor
from coordinator_udf.protocol.wire.shaping import answer

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")

#: For brokers as the cluster tells of them the addresses at which clients reach them, in the same order.
Advertise = Callable[[Sequence[Broker]], Awaitable[Sequence[tuple[str, int]]]]


async def rewrite(api: str, version: int, frame: bytes, advertise: Advertise, gateways: Sequence[Broker] = ()) -> bytes:
    """Returns an answer with its length first, in which brokers have the addresses that `advertise` gives them.

    Args:
        api: Metadata, DescribeCluster or FindCoordinator.
        frame: the answer without its length.
        gateways: what is named besides, where the answer names all brokers.

    Raises:
        MalformedFrame: it isn't such an answer.
    """
    if api == "Metadata":
        return await _metadata(version, frame, advertise, gateways)
    correlation_id, body = split_response(api, version, frame)
    if api == "DescribeCluster":
        await _readdress(body["brokers"], "brokerId", advertise)
        extra = [{"brokerId": one.node_id, "host": one.host, "port": one.port, "isFenced": False} for one in gateways]
        body = answer(api, version, **{**body, "brokers": [*body["brokers"], *extra]})
    else:
        entries: list[dict[str, Any]] = body["coordinators"] if version >= 4 else [body]
        await _readdress([entry for entry in entries if entry["nodeId"] >= 0], "nodeId", advertise)
    return response_bytes(api, version, correlation_id, body)


async def _readdress(entries: Sequence[dict[str, Any]], node_id: str, advertise: Advertise) -> None:
    brokers = [Broker(entry[node_id], entry["host"], entry["port"], entry.get("rack")) for entry in entries]
    for entry, (host, port) in zip(entries, await advertise(brokers), strict=True):
        entry["host"], entry["port"] = host, port


async def _metadata(version: int, frame: bytes, advertise: Advertise, gateways: Sequence[Broker]) -> bytes:
    """Rewrites the brokers at the answer's beginning; all behind them, which may be long, is left as it is."""
    flexible = version >= 9
    cursor = Cursor(frame)
    # The correlation id, the header's tags, the throttle time.
    cursor.advance(_INT32.size)
    if flexible:
        cursor.skip_tags()
    if version >= 3:
        cursor.advance(_INT32.size)
    begin = cursor.pos
    count = cursor.unsigned_varint() - 1 if flexible else _int32(cursor)
    brokers = [_broker(cursor, version) for _ in range(cursor.claim(max(count, 0)))]
    addresses = await advertise(brokers)
    entries = [_entry(broker, *address, version) for broker, address in zip(brokers, addresses, strict=True)]
    entries += [_entry(gateway, gateway.host, gateway.port, version) for gateway in gateways]
    size = _varint(len(entries) + 1) if flexible else _INT32.pack(len(entries))
    content = b"".join((frame[:begin], size, *entries, frame[cursor.pos :]))
    return _INT32.pack(len(content)) + content


def _broker(cursor: Cursor, version: int) -> Broker:
    flexible = version >= 9
    node_id = _int32(cursor)
    host = _text(cursor, flexible) or ""
    port = _int32(cursor)
    rack = _text(cursor, flexible) if version >= 1 else None
    if flexible:
        cursor.skip_tags()
    return Broker(node_id, host, port, rack)


def _entry(broker: Broker, host: str, port: int, version: int) -> bytes:
    flexible = version >= 9
    parts = [_INT32.pack(broker.node_id), _text_bytes(host, flexible), _INT32.pack(port)]
    if version >= 1:
        parts.append(_text_bytes(broker.rack, flexible))
    if flexible:
        parts.append(b"\x00")
    return b"".join(parts)


def _int32(cursor: Cursor) -> int:
    return int(_INT32.unpack_from(cursor.data, cursor.advance(_INT32.size))[0])


def _text(cursor: Cursor, flexible: bool) -> str | None:
    if flexible:
        size = cursor.unsigned_varint() - 1
    else:
        (size,) = _INT16.unpack_from(cursor.data, cursor.advance(_INT16.size))
    if size < 0:
        return None
    start = cursor.advance(size)
    return cursor.data[start : start + size].decode()


def _text_bytes(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\x00" if flexible else _INT16.pack(-1)
    data = text.encode()
    return (_varint(len(data) + 1) if flexible else _INT16.pack(len(data))) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
