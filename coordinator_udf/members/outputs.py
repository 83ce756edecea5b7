"""What a member does: requests, callbacks to run, state changes, and what its application is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from coordinator_udf.members.inputs import TopicPartition


class Request(msgspec.Struct, frozen=True):
    """A request to send now.

    Attributes:
        req: numbers the member's requests from 0.
        to: ``coordinator-N`` for the connection that only the coordinator's requests use, else ``broker-N``.
        api: Kafka's name, as ``JoinGroup``.
        timeout_ms: how long its sender waits for the answer; then it gives a `Disconnect` of the node.
        body: in Kafka's JSON names; bytes in base64.
    """

    req: int
    to: str
    api: str
    api_version: int
    timeout_ms: int
    body: Mapping[str, Any]


class Unsendable(msgspec.Struct, frozen=True):
    """A request that can't be expressed in the version allowed (UnsupportedVersionException)."""

    api: str
    message: str


class MetadataRequest(msgspec.Struct, frozen=True):
    """The member wants a `Metadata` input: topics by name and by id, all topics where ``topics`` is None."""

    topics: tuple[str, ...] | None
    topic_ids: tuple[str, ...] = ()


class Hangup(msgspec.Struct, frozen=True):
    """The member drops its connection to a node. What was in flight there has failed already."""

    node: str
    reqs: tuple[int, ...]


class Callback(msgspec.Struct, frozen=True):
    """The application's rebalance callback is to run now. The member waits for `CallbackDone`."""

    method: str
    partitions: tuple[TopicPartition, ...]


class Assign(msgspec.Struct, frozen=True):
    """The leader's assignor ran: what it saw of the topics, and its result by member id."""

    assignor: str
    partition_counts: Mapping[str, int]
    result: Mapping[str, tuple[TopicPartition, ...]]


class OnAssignment(msgspec.Struct, frozen=True):
    """The assignor was told its member's own assignment."""

    assignor: str
    generation_id: int
    member_id: str
    partitions: tuple[TopicPartition, ...]


class Transition(msgspec.Struct, frozen=True):
    """A KIP-848 member is now in this state."""

    state: str


class ClassicStateChange(msgspec.Struct, frozen=True):
    """What is true of a classic member at the end of an input, given when it changed."""

    state: str
    generation_id: int
    member_id: str
    protocol_name: str | None
    coordinator: str | None
    rejoin_needed: bool
    rejoin_reason: str
    leader: bool
    heartbeating: bool
    assignment: tuple[TopicPartition, ...]


class ConsumerStateChange(msgspec.Struct, frozen=True):
    """What is true of a KIP-848 member at the end of an input, given when it changed. Partitions by topic id."""

    state: str
    member_epoch: int
    member_id: str
    coordinator: str | None
    reconciled: Mapping[str, tuple[int, ...]]
    to_reconcile: Mapping[str, tuple[int, ...]]
    assignment: tuple[TopicPartition, ...]


StateChange = ClassicStateChange | ConsumerStateChange


class ErrorRaised(msgspec.Struct, frozen=True):
    """What a call (``op``) of the application threw. Kafka only logs those of ``network`` and ``background``.

    The classes are Java's simple names, as ``CommitFailedException``.
    """

    op: str
    class_name: str
    message: str | None = None
    cause_class: str | None = None
    cause_message: str | None = None


class CommitDone(msgspec.Struct, frozen=True):
    """A `CommitAsync` is done: None, or the class of its error."""

    error: str | None = None
    message: str | None = None


class OperationDone(msgspec.Struct, frozen=True):
    """A call that waits (commitSync, unsubscribe, close) has returned."""

    op: str


Output = (
    Request
    | Unsendable
    | MetadataRequest
    | Hangup
    | Callback
    | Assign
    | OnAssignment
    | Transition
    | ClassicStateChange
    | ConsumerStateChange
    | ErrorRaised
    | CommitDone
    | OperationDone
)
