"""From what handlers decided to the rows that a shard puts out (schemas/outputs.py)."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import msgspec

from coordinator_udf.groups.context import Answer, Effect, Record, StoredAssignment, Transition
from coordinator_udf.protocol.responses import RESPONSES, shape
from coordinator_udf.protocol.rows import Output

_NAMED_PROTOCOL_VERSION = 7
_encode = msgspec.json.Encoder().encode


def to_output(effect: Effect, partition: int, seq: int) -> Output:
    """The row of one effect."""
    if isinstance(effect, Answer):
        return _answer(effect, partition, seq)
    if isinstance(effect, StoredAssignment):
        return _assignment(effect, partition, seq)
    if isinstance(effect, Record):
        return _record(effect, partition, seq)
    return _transition(effect, partition, seq)


def render(api: str, api_version: int, body: dict[str, Any]) -> str:
    """An answer as JSON with the fields that its version carries, in Kafka's order."""
    if api == "Heartbeat":
        return heartbeat_json(api_version, body["errorCode"])
    if api not in RESPONSES:
        return _encode(body).decode()
    if api == "JoinGroup":
        named = body["protocolName"] or None
        body["protocolName"] = named if api_version >= _NAMED_PROTOCOL_VERSION else named or ""
    return _encode(_cut(body, shape(api, api_version))).decode()


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
    return Output(
        "response",
        partition,
        seq,
        answer.ts,
        answer.request_id,
        answer.by,
        answer.api,
        answer.api_version,
        answer.group_id,
        answer.member_id,
        answer.error_code,
        render(answer.api, answer.api_version, answer.body),
        assignment_refs=_refs(answer.refs),
        parts=answer.parts,
    )


def _assignment(stored: StoredAssignment, partition: int, seq: int) -> Output:
    return Output(
        "assignment",
        partition,
        seq,
        stored.ts,
        stored.cause,
        group_id=stored.group_id,
        member_id=stored.member_id,
        record_offset=stored.record_offset,
        payload=stored.assignment,
    )


def _record(record: Record, partition: int, seq: int) -> Output:
    return Output(
        "record",
        partition,
        seq,
        record.ts,
        record.cause,
        group_id=record.key.get("group"),
        body=None if record.value is None else _encode(record.value).decode(),
        record_type=record.type,
        record_key=_encode(record.key).decode(),
        value_version=record.value_version,
        record_offset=record.offset,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        assignment_refs=_refs(record.refs),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _TransitionBody:
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
    body = _TransitionBody(*transition[2:11], *transition.cause)
    return Output(
        "transition",
        partition,
        seq,
        transition.ts,
        transition.cause.request_id,
        group_id=transition.group_id,
        body=_encode(body).decode(),
    )


def _refs(refs: tuple[int, ...]) -> str | None:
    return ",".join(map(str, refs)) if refs else None
