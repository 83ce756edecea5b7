"""The hash of a group's topics, by which a coordinator sees that one of them changed (KIP-1101).

Source: Kafka's Utils.computeTopicHash and computeGroupHash; XXH3 over what hash4j's stream writes: numbers in little
endian, a string as its UTF-16 units and then their number.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from functools import lru_cache

import xxhash

from coordinator_udf.java_order.tables import java_string_key
from coordinator_udf.protocol.requests import Topic

_MAGIC = b"\x00"
_LONG = struct.Struct("<Q")
_INT = struct.Struct("<i")


def metadata_hash(topics: Mapping[str, Topic], subscribed: Iterable[str]) -> int:
    """Returns the hash of the subscribed topics that exist: signed, 64 bits; 0 if none exists."""
    names = sorted((name for name in subscribed if name in topics), key=java_string_key)
    if not names:
        return 0
    return _signed(xxhash.xxh3_64_intdigest(b"".join(_LONG.pack(_topic_hash(topics[name])) for name in names)))


@lru_cache(maxsize=65_536)
def _topic_hash(topic: Topic) -> int:
    topic_id = urlsafe_b64decode(topic.id + "==")
    data = [
        _MAGIC,
        _LONG.pack(int.from_bytes(topic_id[:8])),
        _LONG.pack(int.from_bytes(topic_id[8:])),
        *_text(topic.name),
        _INT.pack(topic.partitions),
    ]
    for partition in range(topic.partitions):
        data.append(_INT.pack(partition))
        racks = topic.racks[partition] if partition < len(topic.racks) else ()
        for rack in sorted(racks, key=java_string_key):
            units, length = _text(rack)
            data += [length, units, length]
    return xxhash.xxh3_64_intdigest(b"".join(data))


def _text(text: str) -> tuple[bytes, bytes]:
    units = text.encode("utf-16-le", "surrogatepass")
    return units, _INT.pack(len(units) // 2)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
