"""A member's inputs read from a recording's lines, and its outputs written as such lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from coordinator_udf.members import inputs, outputs
from coordinator_udf.members.cluster_view import ClusterView
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.replay.members.recording import Line


def offsets_of(line: Line) -> dict[TopicPartition, int] | None:
    """Returns the offsets of an operation, ``[[topic, partition, offset], ...]``, or None if it has none."""
    if line.get("offsets") is None:
        return None
    return {TopicPartition(topic, partition): offset for topic, partition, offset in line["offsets"]}


def _done(line: Line) -> inputs.Input:
    error = inputs.CallbackError("IllegalStateException", f"scripted failure of {line['method']}")
    return inputs.CallbackDone(line["method"], error if line["throws"] else None)


_INPUTS: dict[str, Callable[[Line], inputs.Input]] = {
    "poll": lambda line: inputs.Poll(),
    "tick": lambda line: inputs.Tick(),
    "response": lambda line: inputs.Response(line["req"], line["body"]),
    "disconnect": lambda line: inputs.Disconnect(line["node"]),
    "metadata": lambda line: inputs.Metadata(ClusterView.from_json(line["view"])),
    "callbackDone": _done,
}
_OPERATIONS: dict[str, Callable[[Line], inputs.Input]] = {
    "subscribe": lambda line: inputs.Subscribe(tuple(line["topics"])),
    "subscribePattern": lambda line: inputs.SubscribePattern(line["pattern"]),
    "subscribeRegex": lambda line: inputs.SubscribeRegex(line["pattern"]),
    "unsubscribe": lambda line: inputs.Unsubscribe(),
    "enforceRebalance": lambda line: inputs.EnforceRebalance(line.get("reason")),
    "consume": lambda line: inputs.Seek(offsets_of(line) or {}),
    "commitAsync": lambda line: inputs.CommitAsync(offsets_of(line)),
    "commitSync": lambda line: inputs.CommitSync(line["timeoutMs"], offsets_of(line)),
    "close": lambda line: inputs.Close(line["timeoutMs"], inputs.Membership(line.get("membership", "DEFAULT"))),
}


def input_of(line: Line) -> inputs.Input:
    """Returns the input that a line tells of.

    Raises:
        KeyError: a line of this type is none, or a field is missing.
    """
    return _OPERATIONS[line["op"]](line) if line["type"] == "op" else _INPUTS[line["type"]](line)


def _partitions(partitions: Iterable[TopicPartition]) -> list[list[Any]]:
    return [list(partition) for partition in partitions]


def line_of(output: outputs.Output, name: str, now_ms: int) -> Line:
    """Returns the line of an output of the member with this name."""
    return {"dir": "out", "ts": now_ms, "m": name, **_fields(output)}


def _fields(output: outputs.Output) -> Line:
    match output:
        case outputs.Request():
            return {
                "type": "request",
                "req": output.req,
                "to": output.to,
                "api": output.api,
                "apiVersion": output.api_version,
                "timeoutMs": output.timeout_ms,
                "body": output.body,
            }
        case outputs.MetadataRequest(topics, topic_ids):
            asked = None if topics is None else sorted([*topics, *(f"id:{topic_id}" for topic_id in topic_ids)])
            return {"type": "metadataRequest", "topics": asked}
        case outputs.Hangup(node, reqs):
            return {"type": "hangup", "node": node, "reqs": list(reqs)}
        case outputs.Unsendable(api, message):
            return {"type": "unsendable", "api": api, "message": message}
        case outputs.ClassicStateChange() | outputs.ConsumerStateChange():
            return _state(output)
        case outputs.Callback(method, partitions):
            return {"type": "callback", "method": method, "partitions": _partitions(partitions)}
        case outputs.Transition(state):
            return {"type": "transition", "state": state}
        case _:
            return _told(output)


def _told(output: outputs.Output) -> Line:
    match output:
        case outputs.Assign(assignor, counts, result):
            by_member = {member: _partitions(partitions) for member, partitions in result.items()}
            return {"type": "assign", "assignor": assignor, "partitionCounts": dict(counts), "result": by_member}
        case outputs.OnAssignment():
            return {
                "type": "onAssignment",
                "assignor": output.assignor,
                "generationId": output.generation_id,
                "memberId": output.member_id,
                "partitions": _partitions(output.partitions),
            }
        case outputs.ErrorRaised():
            line = {"type": "error", "op": output.op, "class": output.class_name, "message": output.message}
            if output.cause_class is not None:
                line |= {"cause": output.cause_class, "causeMessage": output.cause_message}
            return line
        case outputs.CommitDone(error, message):
            return {"type": "commitDone", "error": error} | ({} if error is None else {"message": message})
        case outputs.OperationDone(op):
            return {"type": "opDone", "op": op}
        case _:
            raise TypeError(f"{output!r} is no output of a member")


def _state(output: outputs.StateChange) -> Line:
    assignment = _partitions(output.assignment)
    if isinstance(output, outputs.ClassicStateChange):
        return {
            "type": "state",
            "state": output.state,
            "generationId": output.generation_id,
            "memberId": output.member_id,
            "protocolName": output.protocol_name,
            "coordinator": output.coordinator,
            "rejoinNeeded": output.rejoin_needed,
            "rejoinReason": output.rejoin_reason,
            "leader": output.leader,
            "heartbeating": output.heartbeating,
            "assignment": assignment,
        }
    return {
        "type": "state",
        "state": output.state,
        "memberEpoch": output.member_epoch,
        "memberId": output.member_id,
        "coordinator": output.coordinator,
        "reconciled": {topic_id: list(numbers) for topic_id, numbers in output.reconciled.items()},
        "toReconcile": {topic_id: list(numbers) for topic_id, numbers in output.to_reconcile.items()},
        "assignment": assignment,
    }
