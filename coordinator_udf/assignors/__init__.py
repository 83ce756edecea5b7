"""Partition assignment: from subscriptions to assignments.

An assignor is configured by the name that members call it by or by the name of Kafka's class; one that is not Kafka's
by the full name of its Python class.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Final

from coordinator_udf.assignors.range import RangeAssignor
from coordinator_udf.assignors.spec import Assignor
from coordinator_udf.assignors.uniform import UniformAssignor

_UNIFORM: Final[Assignor] = UniformAssignor()
_RANGE: Final[Assignor] = RangeAssignor()

_BY_NAME: Final[dict[str, Assignor]] = {
    "uniform": _UNIFORM,
    "range": _RANGE,
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": _UNIFORM,
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": _RANGE,
}


class UnknownAssignorError(LookupError):
    """No assignor has this name; the message says which there are."""


def configured_assignors(names: Iterable[str]) -> dict[str, Assignor]:
    """Returns the assignors of ``group.consumer.assignors`` by the names that members call them by.

    The first is the default.

    Raises:
        UnknownAssignorError: there is no assignor of that name, one is named twice, or none is.
    """
    chosen: dict[str, Assignor] = {}
    for name in names:
        assignor = _BY_NAME.get(name) or _of_class(name)
        if assignor.name in chosen:
            raise UnknownAssignorError(f"{name!r} is a second {assignor.name!r}, expected each assignor once")
        chosen[assignor.name] = assignor
    if not chosen:
        raise UnknownAssignorError("there is none, expected at least one assignor")
    return chosen


def _of_class(name: str) -> Assignor:
    """Returns an assignor that isn't Kafka's."""
    module, _, class_name = name.rpartition(".")
    try:
        assignor: Assignor = getattr(import_module(module), class_name)()
    except (ImportError, AttributeError, ValueError, TypeError):
        raise UnknownAssignorError(
            f"{name!r} is no assignor, expected uniform, range, the name of one of Kafka's classes or the full name of "
            "a Python class that can be imported"
        ) from None
    if not isinstance(getattr(assignor, "name", None), str) or not callable(getattr(assignor, "assign", None)):
        raise UnknownAssignorError(f"{name!r} is no assignor, expected a class with a name and a method assign")
    return assignor
