"""Sees to it that members of KIP-848 groups get assignments whose answers were lost.

A coordinator says an assignment once, and again if the member sends a full request, as a client is to do after any
error. librdkafka (2.16) repeats the request that timed out as it was; it would wait, and its group with it, until the
rebalance timeout. So an assignment goes along with the next answer over another connection, until the member has asked
for something over the one that it was sent on.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

import msgspec

#: Of how many members the last assignment is kept until a request shows that it arrived; of older ones it is not said
#: again. It is lost only for a member before whose next heartbeat so many others are assigned: half and double need
#: half and twice as many.
_KEPT_MAX: Final = 10_000

_NO_ASSIGNMENT: Final = '"assignment":null'


class Asked(NamedTuple):
    """Who sent a ConsumerGroupHeartbeat; ``lane`` stands for the connection."""

    member_id: str
    lane: object


class _Told(NamedTuple):
    lane: object
    epoch: int
    assignment: dict[str, Any]


class AssignmentDelivery:
    """Keeps the last assignment of each member until a request shows that it arrived."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, _Told] = OrderedDict()

    def note_request(self, asked: Asked) -> None:
        """Notes a request: one over the connection of the last assignment shows that the assignment arrived."""
        told = self._told.get(asked.member_id)
        if told is not None and told.lane is asked.lane:
            del self._told[asked.member_id]

    def completed(self, asked: Asked, body: str) -> str:
        """Returns the answer to a ConsumerGroupHeartbeat, as JSON, with the assignment that may not have come.

        Call it for answers too that can't be sent any more.
        """
        told = self._told.get(asked.member_id)
        if told is None and _NO_ASSIGNMENT in body:
            return body
        answer: dict[str, Any] = msgspec.json.decode(body)
        if answer["errorCode"] or answer["memberEpoch"] <= 0:
            self._told.pop(asked.member_id, None)
            return body
        if answer["assignment"] is not None:
            self._keep(asked, answer)
            return body
        if told is None or told.lane is asked.lane or told.epoch != answer["memberEpoch"]:
            return body
        answer["assignment"] = told.assignment
        self._keep(asked, answer)
        return msgspec.json.encode(answer).decode()

    def _keep(self, asked: Asked, answer: dict[str, Any]) -> None:
        self._told.pop(asked.member_id, None)
        self._told[asked.member_id] = _Told(asked.lane, answer["memberEpoch"], answer["assignment"])
        if len(self._told) > _KEPT_MAX:
            self._told.popitem(last=False)
