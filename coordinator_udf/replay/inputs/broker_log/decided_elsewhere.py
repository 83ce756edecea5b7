"""Answers that no group coordinator decides: they are adopted from the log, and their requests never reached it.

Whoever may read a group or a topic is decided by the broker's authorizer, whether a producer's transaction is in order
by the transaction coordinator (KIP-890), and whether the offsets topic is there and takes records by the broker. What
the asker may do with a group stands beside what the coordinator says of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from coordinator_udf.protocol.errors import error_codes
from coordinator_udf.replay.inputs.broker_log.line import GROUP_APIS, Entry
from coordinator_udf.replay.inputs.broker_log.refused_parts import without_refused

#: TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
_AUTHORIZATION: Final = {29, 30, 31, 53}
#: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, UNKNOWN_PRODUCER_ID,
#: PRODUCER_FENCED, TRANSACTIONAL_ID_NOT_FOUND, TRANSACTION_ABORTABLE.
_TRANSACTIONS: Final = {47, 48, 49, 51, 59, 90, 105, 120}
#: COORDINATOR_NOT_AVAILABLE.
_UNAVAILABLE: Final = {15}

AUTHORIZATION: Final = "authorization"
PARTLY_REFUSED: Final = "authorization, in part"
TRANSACTION: Final = "verification of a transaction"
UNAVAILABLE: Final = "availability of the offsets topic"
LOADING: Final = "the loading of the shard"


#: What is told of the operations that the asker may do where it didn't ask for them.
NO_OPERATIONS: Final = -(2**31)


class Decided(NamedTuple):
    """An answer that the coordinator didn't decide: the line's number, who did, and whom it was told."""

    number: int
    who: str
    client_id: str | None
    api: str


def tells_operations(entry: Entry) -> bool:
    """Returns whether an answer tells what the asker may do, as it asked; that is the broker's authorizer's."""
    if not entry.request.get("includeAuthorizedOperations") or entry.response is None:
        return False
    groups = entry.response.get("groups") or ()
    return any(group.get("authorizedOperations", NO_OPERATIONS) != NO_OPERATIONS for group in groups)


def decided(entry: Entry) -> Decided | None:
    """Returns who decided an answer, if it wasn't the coordinator."""
    who = _who(entry)
    return None if who is None else Decided(entry.number, who, entry.client_id, entry.api)


def decided_elsewhere(found: Iterable[Decided]) -> dict[int, str]:
    """Returns by the line's number who decided its answer, for those that the coordinator didn't.

    A client that may do something is not refused it once only: one refusal of authorization on its own is no fact.
    """
    return {each.number: each.who for each in _facts(found) if each.who != PARTLY_REFUSED}


def partly_refused(found: Iterable[Decided]) -> frozenset[int]:
    """Returns the numbers of the lines whose requests reached the coordinator without what was refused of them."""
    return frozenset(each.number for each in _facts(found) if each.who == PARTLY_REFUSED)


def _facts(found: Iterable[Decided]) -> list[Decided]:
    found = list(found)
    by_authorizer = {AUTHORIZATION, PARTLY_REFUSED}
    refused = Counter((each.client_id, each.api) for each in found if each.who in by_authorizer)
    return [each for each in found if each.who not in by_authorizer or refused[each.client_id, each.api] > 1]


def _who(entry: Entry) -> str | None:
    if entry.api not in GROUP_APIS or entry.response is None:
        return None
    codes = set(error_codes(entry.response)) - {0}
    if not codes:
        return None
    if codes & _AUTHORIZATION:
        left = without_refused(entry)
        if left is not None and left is not entry:
            return _who(left) or PARTLY_REFUSED
    if codes <= _AUTHORIZATION:
        return AUTHORIZATION
    if entry.api == "TxnOffsetCommit" and codes <= _TRANSACTIONS:
        return TRANSACTION
    return UNAVAILABLE if codes <= _UNAVAILABLE else None
