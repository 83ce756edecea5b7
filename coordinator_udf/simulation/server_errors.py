"""Finds answers by which a coordinator says that it failed (UNKNOWN_SERVER_ERROR): nobody meant what comes of them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from operator import itemgetter
from typing import Final

from coordinator_udf.groups.decisions import PLACES, Row
from coordinator_udf.groups.model.classic_states import ClassicGroupState
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.violation import Violation

#: A member of KIP-848 comes to a classic group whose first generation isn't formed yet, and is refused for good.
TOO_EARLY: Final = "too early"
_RESPONSE = PLACES["responses"]
_TRANSITION = PLACES["transitions"]


class ServerErrors:
    """The answers of a world's coordinator that say that it failed.

    Attributes:
        violations: one for each such answer.
        too_early: the processes that were refused for good because they came too early.
    """

    def __init__(self, history: History) -> None:
        self.violations: list[Violation] = []
        self.too_early: set[str] = set()
        failed = [
            row
            for decided in history.decisions
            for row in decided.responses
            if row[_RESPONSE["error_code"]] == Errors.UNKNOWN_SERVER_ERROR
        ]
        transitions = _transitions(history) if failed else {}
        for row in failed:
            of_group = transitions.get(row[_RESPONSE["group_id"]], [])
            before = bisect_left(of_group, row[_RESPONSE["seq"]], key=itemgetter(_TRANSITION["seq"]))
            self._take(history, row, of_group[before - 1] if before else None)

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


def _transitions(history: History) -> dict[str, list[Row]]:
    """Returns the changes of each group's state, in order."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in history.transitions():
        found[row[_TRANSITION["group_id"]]].append(row)
    return found


def _has_no_protocol(transition: Row) -> bool:
    to_state, protocol = transition[_TRANSITION["to_state"]], transition[_TRANSITION["protocol"]]
    return to_state == ClassicGroupState.PREPARING_REBALANCE and protocol is None
