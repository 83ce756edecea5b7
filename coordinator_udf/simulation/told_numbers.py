"""Whether the coordinator takes requests of generations and epochs that are over: from what it told their members."""

from __future__ import annotations

from typing import NamedTuple

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.simulation.coordinator import Answered, is_accepted
from coordinator_udf.simulation.history import History, NumberTaken

#: The fields in which classic members tell their generation.
_GENERATIONS = {"Heartbeat": "generationId", "SyncGroup": "generationId", "OffsetCommit": "generationIdOrMemberEpoch"}


class _Told(NamedTuple):
    """The generation or epoch that a member was told last, and the one before it."""

    number: int
    before: int


class ToldNumbers:
    """The generations and epochs that a world's members were told last, by their ids.

    A generation is told to all members as it begins, and an epoch to its member, so that nothing else is to be taken of
    them, but for an epoch's predecessor: the answer that told the epoch may have been lost (KIP-848).
    """

    def __init__(self, history: History) -> None:
        """Makes it for a world in which nobody was told anything."""
        self._history = history
        self._told: dict[str, _Told] = {}

    def hear(self, answer: Answered) -> None:
        """Takes note of an answer that the coordinator has for a member."""
        request, body = answer.request, answer.body
        if request.api == "JoinGroup":
            if body["errorCode"] == Errors.NONE:
                self._told[body["memberId"]] = _Told(body["generationId"], body["generationId"])
        elif request.api == "ConsumerGroupHeartbeat":
            if is_accepted(answer):
                self._take(answer, request.body["memberEpoch"])
                self._tell(request.body["memberId"], body["memberEpoch"])
        elif request.api in _GENERATIONS and is_accepted(answer):
            told = self._told.get(request.body["memberId"])
            # With members of KIP-848 a commit may be of an older epoch: where each partition was assigned since.
            if told is not None and told.before == told.number:
                self._take(answer, request.body[_GENERATIONS[request.api]])

    def _take(self, answer: Answered, number: int) -> None:
        request = answer.request
        told = self._told.get(request.body["memberId"])
        # Who joins, or leaves, has none.
        if told is not None and number > 0 and number not in told:
            taken = NumberTaken(
                answer.ts_ms, request.body["groupId"], answer.connection.member, request.api, number, told.number
            )
            self._history.numbers_taken.append(taken)

    def _tell(self, member_id: str, epoch: int) -> None:
        told = self._told.get(member_id)
        if epoch <= 0:
            self._told.pop(member_id, None)
        elif told is None or epoch != told.number:
            self._told[member_id] = _Told(epoch, 0 if told is None else told.number)

    def begin_anew(self) -> None:
        """Forgets all: a coordinator that is loaded may know less than was told (a generation that wasn't stored)."""
        self._told.clear()
