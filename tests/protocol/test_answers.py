"""The table of what an answer carries agrees with Kafka's schemas, for every API and version."""

from __future__ import annotations

import dataclasses
import importlib
import re
import types
import typing
from typing import Any

import pytest

from coordinator_udf.protocol.answers import RESPONSES, shape
from coordinator_udf.protocol.requests import VERSIONS


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def schema_fields(entity: Any) -> dict[str, Any]:
    """Field -> the entity below it, or None, of a schema's class."""
    hints = typing.get_type_hints(entity)
    return {field.name: below(hints[field.name]) for field in dataclasses.fields(entity)}


def below(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    is_nested = typing.get_origin(hint) in {tuple, typing.Union, types.UnionType}
    found = [below(part) for part in typing.get_args(hint)] if is_nested else []
    return next((entity for entity in found if entity is not None), None)


def kio_name(name: str) -> str:
    return {"throttle_time_ms": "throttle_time", "heartbeat_interval_ms": "heartbeat_interval"}.get(name, name)


def agree(fields: tuple[tuple[str, Any], ...], entity: Any, where: str) -> None:
    ours = {kio_name(snake(name)): nested for name, nested in fields}
    theirs = schema_fields(entity)
    assert list(ours) == list(theirs), where
    for name, nested in ours.items():
        if nested is not None:
            agree(nested, theirs[name], f"{where}.{name}")


CLASSIC = [(api, version) for api in RESPONSES for version in range(VERSIONS[api][0], VERSIONS[api][1] + 1)]


@pytest.mark.parametrize(("api", "version"), CLASSIC)
def test_an_answer_has_the_fields_of_its_version(api: str, version: int) -> None:
    module = importlib.import_module(f"kio.schema.{snake(api)}.v{version}.response")
    agree(shape(api, version), getattr(module, f"{api}Response"), f"{api} v{version}")
