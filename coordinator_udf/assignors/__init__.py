"""Partition assignment: from subscriptions to assignments.

An assignor is configured by the name that members call it by, or by the name of Kafka's class.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_udf.assignors.range import RangeAssignor
from coordinator_udf.assignors.sorted import SortedAssignor
from coordinator_udf.assignors.spec import Assignor
from coordinator_udf.assignors.uniform import UniformAssignor
from coordinator_udf.settings.coordinator import SettingsError

_ASSIGNORS: tuple[Assignor, ...] = (UniformAssignor(), RangeAssignor(), SortedAssignor())

_BY_NAME: dict[str, Assignor] = {
    **{assignor.name: assignor for assignor in _ASSIGNORS},
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": _ASSIGNORS[0],
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": _ASSIGNORS[1],
    "oracle.SortedAssignor": _ASSIGNORS[2],
}


def configured_assignors(names: Iterable[str]) -> dict[str, Assignor]:
    """The assignors of ``group.consumer.assignors`` by the names that members call them by; the first is the default.

    Raises:
        SettingsError: there is no assignor of that name, or none is named.
    """
    chosen: dict[str, Assignor] = {}
    for name in names:
        assignor = _BY_NAME.get(name)
        if assignor is None:
            raise SettingsError(
                f"group.consumer.assignors has {name!r}, expected {', '.join(a.name for a in _ASSIGNORS)} "
                "or the name of Kafka's class"
            )
        chosen[assignor.name] = assignor
    if not chosen:
        raise SettingsError("group.consumer.assignors is empty, expected at least one assignor")
    return chosen
