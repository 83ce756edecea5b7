"""From what handlers decided to the rows that a shard puts out (schemas/outputs.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from coordinator_udf.groups.context import Answer, Effect, Record, StoredAssignment, Transition
from coordinator_udf.protocol.responses import RESPONSES, shape
from coordinator_udf.protocol.rows import Output

_NAMED_PROTOCOL_VERSION = 7
_encode = msgspec.json.Encoder().encode
#: Makes a named tuple of all its fields without the detour over a constructor with 21 arguments.
_new = tuple.__new__


def to_outputs(effects: Sequence[Effect], partition: int, seq: int, outputs: list[Output]) -> None:
    """Appends the rows of effects, the first of which gets the number ``seq``."""
    outputs += [_ROWS[type(effect)](effect, partition, number) for number, effect in enumerate(effects, seq)]


def render(api: str, api_version: int, body: dict[str, Any]) -> str:
    """An answer as JSON with the fields that its version carries, in Kafka's order."""
    if api == "Heartbeat":
        return heartbeat_json(api_version, body["errorCode"])
    if api not in RESPONSES:
        return _encode(body).decode()
    if api == "JoinGroup" and not body["protocolName"]:
        body["protocolName"] = None if api_version >= _NAMED_PROTOCOL_VERSION else ""
    if not _is_whole(body, _plan(api, api_version)):
        body = _cut(body, shape(api, api_version))
    return _encode(body).decode()


class _Plan(NamedTuple):
    """The names of an answer's fields in order, and the plans of those that have fields below them."""

    names: tuple[str, ...]
    nested: tuple[tuple[str, _Plan], ...]


@lru_cache(maxsize=256)
def _plan(api: str, api_version: int) -> _Plan:
    return _planned(shape(api, api_version))


def _planned(fields: tuple[tuple[str, Any], ...]) -> _Plan:
    nested = tuple((name, _planned(below)) for name, below in fields if below is not None)
    return _Plan(tuple(name for name, _ in fields), nested)


def _is_whole(body: dict[str, Any], plan: _Plan) -> bool:
    """Whether a body has the version's fields and no others, in their order: most are of the newest version."""
    if tuple(body) != plan.names:
        return False
    for name, below in plan.nested:
        for item in body[name] or ():
            if not _is_whole(item, below):
                return False
    return True


@lru_cache(maxsize=1024)
def heartbeat_json(api_version: int, error_code: int) -> str:
    """The whole answer to a heartbeat; there are few different ones."""
    body = {"throttleTimeMs": 0, "errorCode": error_code}
    return _encode(_cut(body, shape("Heartbeat", api_version))).decode()


def _cut(body: dict[str, Any], fields: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    cut = {}
    for name, below in fields:
        value = body[name]
        cut[name] = value if below is None or not value else [_cut(item, below) for item in value]
    return cut


def _answer(answer: Answer, partition: int, seq: int) -> Output:
    ts, request_id, by, api, version, group_id, member_id, body, error_code, refs, parts = answer
    text = render(api, version, body)
    return _new(
        Output,
        ("response", partition, seq, ts, request_id, by, api, version, group_id, member_id, error_code, text)
        + (None,) * 6
        + (_refs(refs) if refs else None, parts, None),
    )


def _assignment(stored: StoredAssignment, partition: int, seq: int) -> Output:
    ts, cause, group_id, record_offset, member_id, assignment = stored
    return _new(
        Output,
        ("assignment", partition, seq, ts, cause, None, None, None, group_id, member_id)
        + (None,) * 5
        + (record_offset, None, None, None, None, assignment),
    )


def _record(record: Record, partition: int, seq: int) -> Output:
    return Output(
        "record",
        partition,
        seq,
        record.ts,
        record.cause,
        group_id=record.key.get("group") or record.key.get("groupId"),
        body=None if record.value is None else _encode(record.value).decode(),
        record_type=record.type,
        record_key=_encode(record.key).decode(),
        value_version=record.value_version,
        record_offset=record.offset,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        assignment_refs=_refs(record.refs),
    )


class _TransitionBody(msgspec.Struct, frozen=True):
    """The columns of group_transitions that no column of the output has."""

    from_state: str | None
    to_state: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    rule: str
    reason: str | None
    members: tuple[str, ...]
    cause_request_id: str | None
    cause_api: str | None
    cause_member_id: str | None
    cause_client_id: str | None
    cause_client_host: str | None
    cause_client_reason: str | None
    cause_timer: str | None


def _transition(transition: Transition, partition: int, seq: int) -> Output:
    cause = transition.cause
    body = _encode(_TransitionBody(*transition[2:11], *cause)).decode()
    return _new(
        Output,
        ("transition", partition, seq, transition.ts, cause.request_id, None, None, None, transition.group_id)
        + (None, None, body)
        + (None,) * 9,
    )


def _refs(refs: tuple[int, ...]) -> str | None:
    if not refs:
        return None
    return str(refs[0]) if len(refs) == 1 else ",".join(map(str, refs))


#: How each kind of effect becomes a row.
_ROWS: dict[type[Effect], Callable[[Any, int, int], Output]] = {
    Answer: _answer,
    StoredAssignment: _assignment,
    Record: _record,
    Transition: _transition,
}
