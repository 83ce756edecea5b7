"""The answers that a classic member reads, of any version: what is missing or of another type is no answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from coordinator_udf.members.exceptions import ClientException


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    """Kafka's JSON field names; fields that a member doesn't look at are skipped."""


class CoordinatorAnswer(_Answer, frozen=True):
    """Where a group's coordinator is."""

    error_code: int
    node_id: int
    error_message: str | None = None


class FindCoordinatorAnswer(_Answer, frozen=True):
    """Up to version 3 the coordinator stands in the answer itself, later in a list."""

    coordinators: tuple[CoordinatorAnswer, ...] | None = None
    error_code: int = 0
    node_id: int = -1
    error_message: str | None = None

    def found(self) -> CoordinatorAnswer:
        """Returns the coordinator.

        Raises:
            ClientException: there isn't exactly one (IllegalStateException).
        """
        if self.coordinators is None:
            return CoordinatorAnswer(self.error_code, self.node_id, self.error_message)
        if len(self.coordinators) != 1:
            raise ClientException(
                "IllegalStateException",
                f"Group coordinator lookup failed: {len(self.coordinators)} coordinators in the answer, expected 1",
            )
        return self.coordinators[0]


class JoinedMember(_Answer, frozen=True):
    """A member of the group, as its leader is told."""

    member_id: str
    metadata: bytes
    group_instance_id: str | None = None


class JoinGroupAnswer(_Answer, frozen=True):
    """A generation of the group; with extensions, whether it takes the leader's errors and new assignments."""

    error_code: int
    generation_id: int
    protocol_name: str | None
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...]
    protocol_type: str | None = None
    skip_assignment: bool = False
    sync_errors: bool = False
    resync: bool = False


class SyncGroupAnswer(_Answer, frozen=True):
    """The member's assignment; with extensions, which of its generation it is, or why the leader has none."""

    error_code: int
    assignment: bytes
    protocol_type: str | None = None
    protocol_name: str | None = None
    resync_epoch: int = 0
    sync_error_reason: str | None = None


class HeartbeatAnswer(_Answer, frozen=True):
    """Whether the member is still in its generation; with extensions, whether there is a new assignment to ask for."""

    error_code: int
    resync_epoch: int = 0
    give_up_first: bool = False


class LeftMember(_Answer, frozen=True):
    """What came of one member's leaving."""

    error_code: int


class LeaveGroupAnswer(_Answer, frozen=True):
    """Whether the member has left."""

    error_code: int
    members: tuple[LeftMember, ...] = ()

    def error(self) -> int:
        """Returns the answer's error, or its first member's."""
        return self.error_code or next((member.error_code for member in self.members if member.error_code), 0)


class CommittedPartition(_Answer, frozen=True):
    """What came of one partition's offset."""

    partition_index: int
    error_code: int


class CommittedTopic(_Answer, frozen=True):
    """What came of one topic's offsets."""

    name: str
    partitions: tuple[CommittedPartition, ...]


class OffsetCommitAnswer(_Answer, frozen=True):
    """What came of the offsets."""

    topics: tuple[CommittedTopic, ...]


A = TypeVar("A", bound=_Answer)


def read_answer(body: Mapping[str, Any], kind: type[A]) -> A:
    """Reads an answer's body.

    Raises:
        ClientException: a field is missing or of another type (SchemaException); the message names it.
    """
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise ClientException("SchemaException", f"{kind.__name__}: {error}") from error
