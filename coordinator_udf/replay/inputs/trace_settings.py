"""The settings that stand in a trace, as the coordinator here has them.

A trace is recorded from Kafka's own coordinator, driven in one process by a program around it. What belongs to that
program has another name here, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coordinator_udf.replay.inputs.oracle_assignor import SortedAssignor

#: In a broker it is the offsets topic that limits the size of a write.
_RENAMED: Final = {"oracle.max.message.bytes": "group.metadata.max.bytes"}

#: In virtual time a thread in the background is done at once: nothing in the trace depends on it.
_WITHOUT_EFFECT: Final = frozenset({"group.consumer.assignor.offload.enable"})

_ASSIGNORS: Final = {"oracle.SortedAssignor": f"{SortedAssignor.__module__}.{SortedAssignor.__qualname__}"}


def settings_of_trace(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings by Kafka's names as a trace has them, by the names that they have here."""
    settings = {_RENAMED.get(name, name): value for name, value in values.items() if name not in _WITHOUT_EFFECT}
    assignors = settings.get("group.consumer.assignors")
    if isinstance(assignors, str):
        assignors = [name.strip() for name in assignors.split(",")]
    if isinstance(assignors, list | tuple):
        settings["group.consumer.assignors"] = [_ASSIGNORS.get(name, name) for name in assignors]
    return settings
