"""What can happen to a member: the application's calls, the network's events, and time.

A member handles one input at a time, at a time given with it. An application is in one call at a time: after
`CommitSync`, `Close` or `Unsubscribe` no other call may come before `OperationDone` or `ErrorRaised`; after a
`Callback` none before its `CallbackDone`, but those that the callback itself makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from coordinator_udf.members.cluster_view import ClusterView


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Membership(StrEnum):
    """What close does about the membership (CloseOptions.GroupMembershipOperation)."""

    LEAVE_GROUP = "LEAVE_GROUP"
    REMAIN_IN_GROUP = "REMAIN_IN_GROUP"
    DEFAULT = "DEFAULT"


class Poll(msgspec.Struct, frozen=True):
    """The application calls poll with no time to wait."""


class Tick(msgspec.Struct, frozen=True):
    """The member's own deadline is here (`next_deadline_ms`). At any other time it does no harm."""


class Response(msgspec.Struct, frozen=True):
    """The answer to a request, its body in Kafka's JSON names."""

    req: int
    body: Mapping[str, Any]


class Disconnect(msgspec.Struct, frozen=True):
    """The connection to a node is lost, and what was in flight on it."""

    node: str


class Metadata(msgspec.Struct, frozen=True):
    """The answer to the last `MetadataRequest`: the cluster, of which the topics that were asked for count.

    Attributes:
        is_asked: False lets a member learn of the cluster though it has not asked; by default it ignores that.
        came_ms: when it came, in milliseconds since the epoch, if that was before the member is given it.
    """

    view: ClusterView
    is_asked: bool = True
    came_ms: int | None = None


class CallbackError(NamedTuple):
    """What a callback of the application threw: the name of its class, and its message."""

    class_name: str
    message: str | None = None


class CallbackDone(msgspec.Struct, frozen=True):
    """The rebalance callback that is running returns, or throws."""

    method: str
    error: CallbackError | None = None


class Subscribe(msgspec.Struct, frozen=True):
    """The application subscribes to topics by name."""

    topics: tuple[str, ...]


class SubscribePattern(msgspec.Struct, frozen=True):
    """The application subscribes to what matches a Java pattern, matched by the member."""

    pattern: str


class SubscribeRegex(msgspec.Struct, frozen=True):
    """The application subscribes to what matches a pattern of RE2, matched by the broker (KIP-848 only)."""

    pattern: str


class Unsubscribe(msgspec.Struct, frozen=True):
    """The application takes back its subscription. Ends with `OperationDone` or `ErrorRaised`."""


class EnforceRebalance(msgspec.Struct, frozen=True):
    """The application asks for a rebalance."""

    reason: str | None = None


class Seek(msgspec.Struct, frozen=True):
    """The application's positions are now these, where the partitions are assigned.

    Inside of a callback only the positions change; else the member also does what is due at this moment.
    """

    offsets: Mapping[TopicPartition, int]


class Consumed(msgspec.Struct, frozen=True):
    """The application has read up to these positions, where the partitions are assigned. Nothing else comes of it."""

    offsets: Mapping[TopicPartition, int]


class CommitAsync(msgspec.Struct, frozen=True):
    """The application commits offsets (None: its positions). Ends with `CommitDone`, in a later call perhaps."""

    offsets: Mapping[TopicPartition, int] | None = None


class CommitSync(msgspec.Struct, frozen=True):
    """The application commits offsets (None: its positions) and waits, at most so long, in milliseconds."""

    timeout_ms: int
    offsets: Mapping[TopicPartition, int] | None = None


class Close(msgspec.Struct, frozen=True):
    """The application closes the member, waiting at most so long, in milliseconds. The member is gone afterwards."""

    timeout_ms: int
    membership: Membership = Membership.DEFAULT


Operation = (
    Subscribe
    | SubscribePattern
    | SubscribeRegex
    | Unsubscribe
    | EnforceRebalance
    | Seek
    | CommitAsync
    | CommitSync
    | Close
)
Input = Poll | Tick | Response | Disconnect | Metadata | CallbackDone | Consumed | Operation
