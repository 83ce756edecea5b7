"""Messages that Kafka hasn't got, and fields that its messages haven't got, in the form of Kafka's own definitions.

A file here is a request or a response, as ``<name>.json`` of Kafka's ``clients/src/main/resources/common/message``: an
API of its own with a key from `FIRST_EXTENSION` on, or Kafka's message with what is added to it. What is added are
tagged fields with tags from `FIRST_EXTENSION` on, which who doesn't know them steps over (KIP-482); a field without a
tag there is one of Kafka's whose own fields are extended.

They become dataclasses as kio's are, so that reader, writer and shapes take them as they take Kafka's.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from types import UnionType
from typing import Any, Final, Literal, get_args, get_origin

from kio.index import UnknownEntity, load_request_schema, load_response_schema
from kio.static.constants import EntityType

#: The first tag, and the first API key, that Kafka doesn't number: its own go up one by one from 0.
FIRST_EXTENSION: Final = 10_000

MessageType = Literal["request", "response"]

_Definition = Mapping[str, Any]

_LOAD: Final[dict[str, Callable[[int, int], type[Any]]]] = {
    "request": load_request_schema,
    "response": load_response_schema,
}

#: Kafka's primitive types: Python's, and the value of a tagged field that isn't there.
_PRIMITIVES: Final[dict[str, tuple[type[Any], Any]]] = {
    "bool": (bool, False),
    "int8": (int, 0),
    "int16": (int, 0),
    "int32": (int, 0),
    "int64": (int, 0),
    "string": (str, ""),
    "bytes": (bytes, b""),
    "uuid": (object, None),
}


@cache
def definitions() -> Mapping[tuple[int, str], _Definition]:
    """Reads all definitions, by API key and by ``request`` or ``response``."""
    found = {}
    for file in files(__package__).iterdir():
        if file.name.endswith(".json"):
            definition = json.loads(file.read_text())
            found[definition["apiKey"], definition["type"]] = definition
    return found


def load_entity(type_: MessageType, api_key: int, version: int) -> type[Any]:
    """Returns the dataclass of a message: kio's, with what is added to it, or one of an API that Kafka hasn't got.

    Raises:
        kio.index.KioIndexError: the API has no such version.
    """
    definition = definitions().get((api_key, type_))
    if api_key < FIRST_EXTENSION:
        entity = _LOAD[type_](api_key, version)
        return entity if definition is None else _extended(entity, definition["fields"], version)
    if definition is None or not _has(definition["validVersions"], version):
        raise UnknownEntity(f"there is no version {version} of the {type_} with API key {api_key}")
    return _made(definition["name"], definition["fields"], version, EntityType[type_])


def _has(versions: str, version: int) -> bool:
    """Returns whether a range as Kafka writes it (``1``, ``0-2``, ``1+``) has a version."""
    first, _, last = versions.rstrip("+").partition("-")
    return int(first) <= version and (versions.endswith("+") or version <= int(last or first))


def _made(name: str, fields: list[_Definition], version: int, type_: EntityType) -> type[Any]:
    made = [_field(field, version) for field in fields if _has(field["versions"], version)]
    return _dataclass(name, made, {"__type__": type_, "__version__": version, "__flexible__": True})


def _extended(entity: type[Any], fields: list[_Definition], version: int) -> type[Any]:
    """Returns a dataclass with more fields than the one given, or the one given if this version has no more."""
    added = [field for field in fields if _has(field["versions"], version)]
    inner = {_attribute(field["name"]): field["fields"] for field in added if "tag" not in field}
    members = []
    changed = False
    for known in dataclasses.fields(entity):
        declared: Any = known.type
        if known.name in inner:
            nested = _struct_of(declared)
            extended = _extended(nested, inner[known.name], version)
            changed |= extended is not nested
            declared = _with_struct(declared, extended)
        members.append((known.name, declared, dataclasses.field(default=known.default, metadata=known.metadata)))
    members += [_field(field, version) for field in added if "tag" in field]
    if not changed and len(members) == len(dataclasses.fields(entity)):
        return entity
    names = ("__type__", "__version__", "__flexible__")
    return _dataclass(entity.__name__, members, {name: getattr(entity, name) for name in names})


def _dataclass(name: str, members: list[tuple[str, Any, Any]], namespace: dict[str, Any]) -> type[Any]:
    return dataclasses.make_dataclass(name, members, namespace=namespace, frozen=True, kw_only=True)


def _struct_of(declared: Any) -> type[Any]:
    for part in get_args(declared):
        if dataclasses.is_dataclass(part):
            return part if isinstance(part, type) else type(part)
        if get_args(part):
            return _struct_of(part)
    return declared if isinstance(declared, type) else type(declared)


def _with_struct(declared: Any, struct: type[Any]) -> Any:
    if get_origin(declared) is UnionType:
        (content,) = (part for part in get_args(declared) if part is not type(None))
        return _with_struct(content, struct) | None
    return tuple[struct, ...] if get_origin(declared) is tuple else struct  # type: ignore[valid-type]


def _field(field: _Definition, version: int) -> tuple[str, Any, Any]:
    kind: str = field["type"].removeprefix("[]")
    is_array = kind != field["type"]
    declared: Any
    implied: Any
    if kind in _PRIMITIVES:
        declared, implied = _PRIMITIVES[kind]
        metadata: dict[str, Any] = {"kafka_type": kind}
    else:
        declared, implied = _made(kind, field["fields"], version, EntityType.nested), None
        metadata = {}
    if is_array:
        declared, implied = tuple[declared, ...], ()
    if "nullableVersions" in field and _has(field["nullableVersions"], version):
        declared = declared | None
    default: Any = dataclasses.MISSING
    if "taggedVersions" in field:
        metadata["tag"] = field["tag"]
        default = implied
    if "default" in field:
        default = _default(kind, field["default"])
    return _attribute(field["name"]), declared, dataclasses.field(default=default, metadata=metadata)


def _default(kind: str, text: str) -> Any:
    if text == "null":
        return None
    if kind == "bool":
        return text == "true"
    return text.encode() if kind == "bytes" else text if kind == "string" else int(text)


def _attribute(name: str) -> str:
    """Returns kio's name of a field: ``TopicId`` -> ``topic_id``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
