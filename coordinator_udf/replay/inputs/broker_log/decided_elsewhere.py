"""Answers that no group coordinator decides: they are adopted from the log, and their requests never reached it.

Whoever may read a group or a topic is decided by the broker's authorizer, whether a producer's transaction is in order
by the transaction coordinator (KIP-890), and whether the offsets topic is there and takes records by the broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from coordinator_udf.replay.inputs.broker_log.line import GROUP_APIS, Entry

#: TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
_AUTHORIZATION: Final = {29, 30, 31, 53}
#: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, UNKNOWN_PRODUCER_ID,
#: PRODUCER_FENCED, TRANSACTIONAL_ID_NOT_FOUND, TRANSACTION_ABORTABLE.
_TRANSACTIONS: Final = {47, 48, 49, 51, 59, 90, 105, 120}
#: COORDINATOR_NOT_AVAILABLE.
_UNAVAILABLE: Final = {15}

AUTHORIZATION: Final = "authorization"
TRANSACTION: Final = "verification of a transaction"
UNAVAILABLE: Final = "availability of the offsets topic"


def decided_elsewhere(entries: Sequence[Entry]) -> dict[int, str]:
    """By the entry's number, who decided its answer, for those that the coordinator didn't.

    A client that may do something is not refused it once only: one refusal of authorization on its own is no fact.
    """
    found: dict[int, str] = {}
    refused: Counter[tuple[str | None, str]] = Counter()
    for entry in entries:
        who = _who(entry)
        if who is not None:
            found[entry.number] = who
            if who == AUTHORIZATION:
                refused[entry.client_id, entry.api] += 1
    return {
        entry.number: who
        for entry in entries
        if (who := found.get(entry.number)) is not None
        and (who != AUTHORIZATION or refused[entry.client_id, entry.api] > 1)
    }


def _who(entry: Entry) -> str | None:
    if entry.api not in GROUP_APIS or entry.response is None:
        return None
    codes = set(_codes(entry.response)) - {0}
    if not codes:
        return None
    if codes <= _AUTHORIZATION:
        return AUTHORIZATION
    if entry.api == "TxnOffsetCommit" and codes <= _TRANSACTIONS:
        return TRANSACTION
    return UNAVAILABLE if codes <= _UNAVAILABLE else None


def _codes(node: Any) -> Iterator[int]:
    if isinstance(node, Mapping):
        for name, value in node.items():
            if name == "errorCode":
                yield value
            else:
                yield from _codes(value)
    elif isinstance(node, list):
        for item in node:
            yield from _codes(item)
