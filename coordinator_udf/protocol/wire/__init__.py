"""Kafka's wire format and Kafka's JSON, each from the other, for every message that kio knows.

The bodies are dicts in Kafka's JSON field names of the message's version, bytes as base64, uuids as url-safe base64:
what Kafka's own JsonConverters write and its request log shows. kio brings the messages (generated from Kafka's
definitions) and writes them; what comes from a socket is read here, since kio's native reader sets aside memory for as
many elements as an array claims to have, and a claim of two billion ends the process.
"""

from coordinator_udf.protocol.wire.frames import (
    RequestHeader,
    read_request_header,
    request_bytes,
    response_bytes,
    split_response,
    told_response_bytes,
)
from coordinator_udf.protocol.wire.reader import MalformedFrame, decode
from coordinator_udf.protocol.wire.schema import Message, kafkas, request_message, response_message
from coordinator_udf.protocol.wire.writer import EncodeError, encode

__all__ = [
    "EncodeError",
    "MalformedFrame",
    "Message",
    "RequestHeader",
    "decode",
    "encode",
    "kafkas",
    "read_request_header",
    "request_bytes",
    "request_message",
    "response_bytes",
    "response_message",
    "split_response",
    "told_response_bytes",
]
