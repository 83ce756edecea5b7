"""Requests for the coordinator: who sends one, and what its kind says of its way."""

from __future__ import annotations

import asyncio
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from coordinator_udf.gateway.server.interfaces import MakeBody
from coordinator_udf.protocol.unchanged_heartbeat import unchanged_heartbeat

#: The APIs whose answer waits for what other members do.
WAITING: Final = frozenset(("JoinGroup", "SyncGroup"))

#: What a client sends before it closes its connection, not waiting for an answer.
_MEANT_WITHOUT_ANSWER: Final = frozenset(("OffsetCommit", "LeaveGroup", "OffsetDelete", "DeleteGroups"))

_LEAVE_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class Call:
    """A request of a coordinated API, and who sent it."""

    api: str
    api_version: int
    client_id: str | None
    client_host: str
    body: Mapping[str, Any]
    lane: object = None
    principal: str | None = None


@dataclass(frozen=True, slots=True)
class Nameless:
    """A member that joins without an id; ``member_id`` is proposed to the coordinator."""

    api: str
    group_id: str
    member_id: str
    client_id: str | None
    client_host: str
    is_static: bool
    principal: str | None = None

    def leaving(self) -> Call:
        """Returns the request by which it leaves."""
        member = {"memberId": self.member_id, "groupInstanceId": None}
        if self.api == "JoinGroup":
            body: dict[str, Any] = {"groupId": self.group_id, "members": [member]}
            return Call("LeaveGroup", _LEAVE_VERSION, self.client_id, self.client_host, body, principal=self.principal)
        body = unchanged_heartbeat(self.group_id, self.member_id, -1, version=0)
        return Call("ConsumerGroupHeartbeat", 0, self.client_id, self.client_host, body, principal=self.principal)


def is_wanted(call: Call, answered: asyncio.Future[MakeBody]) -> bool:
    """Returns whether a request that isn't in the log yet is to be handled.

    Not if its client was told already that it got no answer. If the client is gone, what has an effect that it may
    count on without an answer: a commit, and that it leaves.
    """
    if not answered.done():
        return True
    if not answered.cancelled():
        return False
    leaves = call.api == "ConsumerGroupHeartbeat" and call.body["memberEpoch"] < 0
    return leaves or call.api in _MEANT_WITHOUT_ANSWER


def is_sign_of_life(call: Call) -> bool:
    """Returns whether a request is the heartbeat of somebody who is a member, and goes on to be."""
    return call.api == "Heartbeat" or (call.api == "ConsumerGroupHeartbeat" and call.body["memberEpoch"] > 0)


def find_nameless(call: Call) -> Nameless | None:
    """Returns the member that joins without an id, with one as Kafka makes them; None if this is no such request.

    A classic member's is the id of its instance or of its client and a uuid; a consumer protocol member's is a uuid in
    url-safe base64 (from v1 on it makes its own).
    """
    if call.api == "JoinGroup" and not call.body["memberId"]:
        instance = call.body.get("groupInstanceId")
        member_id = f"{instance or call.client_id or ''}-{uuid.uuid4()}"
    elif call.api == "ConsumerGroupHeartbeat" and not call.body["memberId"]:
        instance = call.body["instanceId"]
        member_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    else:
        return None
    # An instance comes back by its name, and is found by it.
    is_static = instance is not None
    return Nameless(
        call.api, call.body["groupId"], member_id, call.client_id, call.client_host, is_static, call.principal
    )
