"""The requests of a classic member: their fields in each version (the message schemas of Kafka 4.3.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from coordinator_udf.members.exceptions import ClientException

#: Reasons longer than this are cut (JoinGroupRequest.maybeTruncateReason).
_MAX_REASON_CHARS = 255
_INSTANCE_ID = "groupInstanceId"


class Field(msgspec.Struct, frozen=True):
    """A field's value, and the versions that carry it.

    Attributes:
        of_version: makes the value, where it depends on the version.
    """

    value: Any = None
    first: int = 0
    last: int = 2**15 - 1
    of_version: Callable[[int], Any] | None = None


class RequestBuilder(msgspec.Struct, frozen=True):
    """A request before its version is known.

    Attributes:
        fields: by name.
        static_from: the first version that a member with a group.instance.id may use.
    """

    api: str
    latest_version: int
    fields: dict[str, Field]
    static_from: int = 0

    def body(self, version: int) -> dict[str, Any]:
        """Returns the request's body in a version.

        Raises:
            ClientException: it can't be said in that version (UnsupportedVersionException).
        """
        instance_id = self.fields.get(_INSTANCE_ID)
        if version < self.static_from and instance_id is not None and instance_id.value is not None:
            raise ClientException(
                "UnsupportedVersionException",
                f"{self.api} version {version} does not support usage of config group.instance.id.",
            )
        return {
            name: field.value if field.of_version is None else field.of_version(version)
            for name, field in self.fields.items()
            if field.first <= version <= field.last
        }


def find_coordinator(group_id: str) -> RequestBuilder:
    """Asks who coordinates a group."""
    return RequestBuilder(
        "FindCoordinator",
        6,
        {"key": Field(group_id, last=3), "keyType": Field(0, first=1), "coordinatorKeys": Field([group_id], first=4)},
    )


def join_group(
    group_id: str,
    member_id: str,
    instance_id: str | None,
    *,
    protocol_type: str,
    protocols: list[dict[str, str]],
    session_timeout_ms: int,
    rebalance_timeout_ms: int,
    reason: str,
    extensions: bool = False,
) -> RequestBuilder:
    """Joins a group. ``protocols`` have a name and, in base64, the member's metadata.

    Args:
        extensions: whether the member says that it understands the extensions of the classic protocol.
    """
    told = {"clientExtensions": Field(True, first=9)} if extensions else {}
    return RequestBuilder(
        "JoinGroup",
        9,
        {
            "groupId": Field(group_id),
            "sessionTimeoutMs": Field(session_timeout_ms),
            "rebalanceTimeoutMs": Field(rebalance_timeout_ms, first=1),
            "memberId": Field(member_id),
            _INSTANCE_ID: Field(instance_id, first=5),
            "protocolType": Field(protocol_type),
            "protocols": Field(protocols),
            "reason": Field(reason[:_MAX_REASON_CHARS], first=8),
            **told,
        },
        static_from=5,
    )


def sync_group(
    group_id: str,
    member_id: str,
    instance_id: str | None,
    generation_id: int,
    *,
    protocol_type: str,
    protocol_name: str | None,
    assignments: list[dict[str, str]],
    extensions: Mapping[str, Any],
) -> RequestBuilder:
    """Asks for the member's assignment. ``assignments`` are the leader's: a member id and bytes in base64 each.

    Args:
        extensions: fields that Kafka's request hasn't got.
    """
    return RequestBuilder(
        "SyncGroup",
        5,
        {
            "groupId": Field(group_id),
            "generationId": Field(generation_id),
            "memberId": Field(member_id),
            _INSTANCE_ID: Field(instance_id, first=3),
            "protocolType": Field(protocol_type, first=5),
            "protocolName": Field(protocol_name, first=5),
            "assignments": Field(assignments),
            **{name: Field(value, first=5) for name, value in extensions.items()},
        },
        static_from=3,
    )


def heartbeat(group_id: str, member_id: str, instance_id: str | None, generation_id: int) -> RequestBuilder:
    """Says that the member is alive."""
    return RequestBuilder(
        "Heartbeat",
        4,
        {
            "groupId": Field(group_id),
            "generationId": Field(generation_id),
            "memberId": Field(member_id),
            _INSTANCE_ID: Field(instance_id, first=3),
        },
        static_from=3,
    )


def leave_group(group_id: str, member_id: str, reason: str) -> RequestBuilder:
    """Leaves a group, by member id, static members too."""

    def members(version: int) -> list[dict[str, str | None]]:
        member: dict[str, str | None] = {"memberId": member_id, _INSTANCE_ID: None}
        return [member | {"reason": reason[:_MAX_REASON_CHARS]} if version >= 5 else member]

    return RequestBuilder(
        "LeaveGroup",
        5,
        {
            "groupId": Field(group_id),
            "memberId": Field(member_id, last=2),
            "members": Field(first=3, of_version=members),
        },
    )


def offset_commit(
    group_id: str, member_id: str, instance_id: str | None, generation_id: int, topics: list[dict[str, Any]]
) -> RequestBuilder:
    """Commits offsets of topics by name, so in version 9 at most."""
    return RequestBuilder(
        "OffsetCommit",
        9,
        {
            "groupId": Field(group_id),
            "generationIdOrMemberEpoch": Field(generation_id, first=1),
            "memberId": Field(member_id, first=1),
            _INSTANCE_ID: Field(instance_id, first=7),
            "topics": Field(topics),
        },
        static_from=7,
    )
