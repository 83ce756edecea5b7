"""Answers as JSON: the fields that their version carries, in Kafka's order (protocol.responses)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from coordinator_udf.protocol.answers import Shape, extension_fields, shape
from coordinator_udf.protocol.requests import VERSIONS

_NAMED_PROTOCOL_VERSION = 7
#: APIs whose bodies are all made in one place, with the fields that the latest version carries and no others.
_MADE_WHOLE = frozenset({"JoinGroup", "SyncGroup"})
#: The fields of a heartbeat's answer; more than these are extensions.
_HEARTBEAT_FIELDS = 2
_encode = msgspec.json.Encoder().encode


def render(api: str, api_version: int, body: dict[str, Any]) -> str:
    """Returns an answer as JSON with the fields that its version carries, in Kafka's order.

    Args:
        body: the fields of the API's latest version at least, in that order.
    """
    if api == "Heartbeat" and len(body) == _HEARTBEAT_FIELDS:
        return heartbeat_json(api_version, body["errorCode"])
    plan = _plan(api, api_version)
    if plan is not None:
        if api == "JoinGroup" and not body["protocolName"]:
            body["protocolName"] = None if api_version >= _NAMED_PROTOCOL_VERSION else ""
        if not plan.is_sure and not _is_whole(body, plan):
            body = _cut(body, shape(api, api_version), extension_fields(api, api_version))
    return _encode(body).decode()


class AnswerTemplate:
    """The JSON of answers that differ in one text alone."""

    __slots__ = ("_head", "_tail")

    def __init__(self, api: str, api_version: int, body: dict[str, Any], field: str) -> None:
        """Takes all but one field of answers.

        Args:
            api: which API's.
            api_version: their version.
            body: the fields of the API's latest version, in that order.
            field: the field that is filled in later; none that comes before it has fields.

        Raises:
            ValueError: the version hasn't got the field.
        """
        # In JSON a quote within a text is escaped, so this is nothing but the field. One of the same name further down
        # comes after it.
        whole = render(api, api_version, {**body, field: ""})
        self._head, found, self._tail = whole.partition(f'"{field}":""')
        if not found:
            raise ValueError(f"version {api_version} of {api} has no field {field!r}")
        self._head += found[:-2]

    def fill(self, text: str) -> str:
        """Returns the answer with that text."""
        return self._head + _encode(text).decode() + self._tail


class _Plan(NamedTuple):
    """The names of an answer's fields in order, and the plans of those that have fields below them.

    Attributes:
        is_sure: whether bodies need no look.
    """

    names: tuple[str, ...]
    nested: tuple[tuple[str, _Plan], ...]
    is_sure: bool


@lru_cache(maxsize=256)
def _plan(api: str, api_version: int) -> _Plan | None:
    """Returns the plan of one version of an API; None for what isn't Kafka's."""
    if api not in VERSIONS:
        return None
    return _planned(shape(api, api_version))._replace(is_sure=api in _MADE_WHOLE and api_version == VERSIONS[api][1])


def _planned(fields: Shape) -> _Plan:
    nested = tuple((name, _planned(below)) for name, below in fields if below is not None)
    return _Plan(tuple(name for name, _ in fields), nested, False)


def _is_whole(body: dict[str, Any], plan: _Plan) -> bool:
    """Returns whether a body has the version's fields and no others, in their order: most are of the newest version."""
    if tuple(body) != plan.names:
        return False
    for name, below in plan.nested:
        for item in body[name] or ():
            if not _is_whole(item, below):
                return False
    return True


def _cut(body: dict[str, Any], fields: Shape, extensions: frozenset[str]) -> dict[str, Any]:
    cut = {}
    for name, below in fields:
        value = body[name]
        cut[name] = value if below is None or not value else [_cut(item, below, extensions) for item in value]
    # Those that Kafka hasn't got are there or not, as there is something to say.
    if extensions:
        cut.update({name: value for name, value in body.items() if name in extensions})
    return cut


@lru_cache(maxsize=1024)
def heartbeat_json(api_version: int, error_code: int) -> str:
    """Returns the whole answer to a heartbeat; there are few different ones."""
    body = {"throttleTimeMs": 0, "errorCode": error_code}
    return _encode(_cut(body, shape("Heartbeat", api_version), frozenset())).decode()
