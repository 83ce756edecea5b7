"""Random bodies of any message, for tests by property."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from typing import Any

from hypothesis import strategies as st

from coordinator_udf.gateway.versions import ADVERTISED, is_served
from coordinator_udf.protocol.wire.schema import API_KEYS, Field, Message, request_message, response_message

_INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32}


def messages() -> list[Message]:
    """Every message of every version that is served."""
    return [
        shape(api, version)
        for api, (first, last) in ADVERTISED.items()
        for version in range(first, last + 1)
        if is_served(api, version)
        for shape in (request_message, response_message)
    ]


def body_of(message: Message) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies of one message: tagged fields are there only with a value that isn't the implied one."""
    plain = {field.name: _values(field) for field in message.fields if field.tag is None}
    return st.fixed_dictionaries(plain)


def _values(field: Field) -> st.SearchStrategy[Any]:
    one: st.SearchStrategy[Any]
    if field.struct is not None:
        one = body_of(field.struct)
    elif field.kind in _INTS:
        limit = 2 ** (_INTS[field.kind] - 1)
        one = st.integers(-limit, limit - 1)
    elif field.kind == "timedelta_i64":
        one = st.integers(-1, 10**14)
    elif field.kind == "datetime_i64":
        # Where kio takes null for no time, -1 is on the wire.
        one = st.integers(-1 if field.nullable else 0, 10**14)
    elif field.kind == "uint16":
        one = st.integers(0, 2**16 - 1)
    elif field.kind == "error_code":
        one = st.sampled_from([0, -1, 3, 15, 16, 22, 25, 27, 35, 42, 69, 79, 100])
    elif field.kind == "bool":
        one = st.booleans()
    elif field.kind == "string":
        one = st.text(max_size=12)
    elif field.kind in {"bytes", "records"}:
        one = st.binary(max_size=40).map(lambda value: b64encode(value).decode())
    elif field.kind == "uuid":
        one = st.binary(min_size=16, max_size=16).map(lambda raw: urlsafe_b64encode(raw).decode().rstrip("="))
    else:
        raise AssertionError(f"{field.name} has the kind {field.kind}: say here how its values look")
    if field.is_array:
        one = st.lists(one, max_size=3)
    has_null = field.nullable and (field.is_array or field.kind not in {"uuid", "datetime_i64"})
    return st.none() | one if has_null else one


assert set(ADVERTISED) <= set(API_KEYS.values())
