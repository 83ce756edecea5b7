"""What clients are told of requests that the coordinator left without an answer."""

from __future__ import annotations

from typing import Final

from coordinator_udf.protocol.errors import Errors

#: What a coordinator that loads says where it isn't COORDINATOR_LOAD_IN_PROGRESS: a heartbeat is taken on trust, and a
#: rebalance whose state isn't known begins anew. Source: GroupCoordinatorService (heartbeat, syncGroup).
_WHILE_LOADING: Final = {"Heartbeat": Errors.NONE, "SyncGroup": Errors.REBALANCE_IN_PROGRESS}


def loading(api: str) -> Errors:
    """Returns what a client is told while the coordinator loads its groups."""
    return _WHILE_LOADING.get(api, Errors.COORDINATOR_LOAD_IN_PROGRESS)


def unanswered(api: str) -> Errors:
    """Returns what a client is told when the coordinator gave no answer in time, or its request could not be stored.

    Kafka turns its REQUEST_TIMED_OUT into these, since clients know them as a reason to look for the coordinator again
    and to retry; an OffsetFetch is told NOT_COORDINATOR, as older clients give up on anything else.
    Source: GroupCoordinatorService.handleOperationException.
    """
    return Errors.NOT_COORDINATOR if api == "OffsetFetch" else Errors.COORDINATOR_NOT_AVAILABLE
