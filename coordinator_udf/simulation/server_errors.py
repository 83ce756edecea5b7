"""Finds answers by which a coordinator says that it failed (UNKNOWN_SERVER_ERROR): nobody meant what comes of them."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Final

from coordinator_udf.groups.decisions import PLACES, Decisions, Row
from coordinator_udf.groups.model.classic_states import ClassicGroupState
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.violation import Violation

#: A member of KIP-848 comes to a classic group whose first generation isn't formed yet, and is refused for good.
TOO_EARLY: Final = "too early"
_RESPONSE = PLACES["responses"]
_TRANSITION = PLACES["transitions"]
_SEQ = itemgetter(0)


class ServerErrors:
    """The answers of a world's coordinator that say that it failed.

    Attributes:
        violations: one for each such answer.
        too_early: the processes that were refused for good because they came too early.
    """

    def __init__(self, history: History) -> None:
        self.violations: list[Violation] = []
        self.too_early: set[str] = set()
        last: dict[str, Row] = {}
        for decided in history.decisions:
            for row in _in_order(decided):
                if len(row) == len(_TRANSITION):
                    last[row[_TRANSITION["group_id"]]] = row
                else:
                    self._take(history, row, last.get(row[_RESPONSE["group_id"]]))

    def _take(self, history: History, answer: Row, transition: Row | None) -> None:
        api, member_id = answer[_RESPONSE["api"]], answer[_RESPONSE["member_id"]] or ""
        who = history.process_of.get(member_id, member_id)
        kind, why = "server error", ""
        # ClassicGroup.protocolName() is empty then, and GroupMetadataManager.convertToConsumerGroup asks for it.
        if api == "ConsumerGroupHeartbeat" and transition is not None and _has_no_protocol(transition):
            kind, why = TOO_EARLY, ": its group is classic, and has no generation yet"
            self.too_early.add(who)
        detail = f"{who} is answered UNKNOWN_SERVER_ERROR to {api}{why}"
        self.violations.append(Violation(answer[_RESPONSE["ts"]], answer[_RESPONSE["group_id"]], kind, detail))


def _in_order(decided: Decisions) -> Iterator[Row]:
    """Yields the changes of groups' states, and the answers that tell of a failure, in the order of both."""
    failed = [row for row in decided.responses if row[_RESPONSE["error_code"]] == Errors.UNKNOWN_SERVER_ERROR]
    yield from sorted([*decided.transitions, *failed], key=_SEQ) if failed else decided.transitions


def _has_no_protocol(transition: Row) -> bool:
    to_state, protocol = transition[_TRANSITION["to_state"]], transition[_TRANSITION["protocol"]]
    return to_state == ClassicGroupState.PREPARING_REBALANCE and protocol is None
