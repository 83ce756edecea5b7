"""The assignors of the client: those that Kafka ships with its own results, and the interface for others."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_udf.members.client_assignors.range import RangeAssignor
from coordinator_udf.members.client_assignors.roundrobin import RoundRobinAssignor
from coordinator_udf.members.client_assignors.spec import ClientAssignor
from coordinator_udf.members.client_assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from coordinator_udf.protocol.errors import BadRequest

_BY_CLASS: dict[str, type[ClientAssignor]] = {
    "RangeAssignor": RangeAssignor,
    "RoundRobinAssignor": RoundRobinAssignor,
    "StickyAssignor": StickyAssignor,
    "CooperativeStickyAssignor": CooperativeStickyAssignor,
}
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."


def make_assignors(strategies: Iterable[str]) -> list[ClientAssignor]:
    """Returns fresh assignors for the values of partition.assignment.strategy: Java's classes, or their simple names.

    A user's own assignors are given to the member as objects.

    Raises:
        BadRequest: a value isn't known.
    """
    made: list[ClientAssignor] = []
    for strategy in strategies:
        known = _BY_CLASS.get(strategy.removeprefix(_JAVA_PACKAGE))
        if known is None:
            raise BadRequest("partition.assignment.strategy", strategy, f"one of {', '.join(_BY_CLASS)}")
        made.append(known())
    return made
