"""What of a change makes no difference to a group, in words: it is so already, or of the other group protocol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.what_if.change import CLASSIC, CONSUMER, Change, protocols

#: How the settings of consumer groups begin, and those that only classic groups have.
_OF_CONSUMER = "group.consumer."
_OF_CLASSIC: Final = frozenset(
    {
        "group.min.session.timeout.ms",
        "group.max.session.timeout.ms",
        "group.initial.rebalance.delay.ms",
        "group.new.member.join.timeout.ms",
        "group.max.size",
        "group.classic.client.extensions.enable",
    }
)


def without_effect(plan: WorldPlan, changed: WorldPlan, change: Change) -> Iterator[str]:
    """Yields what was asked for and makes no difference, with why.

    Args:
        plan: of the world as it was.
        changed: of the world with the change.
    """
    if change == Change():
        return
    spoken = protocols(plan, change)
    for name in change.settings or {}:
        if CONSUMER not in spoken and name.startswith(_OF_CONSUMER):
            yield f"{name}: no member speaks the protocol {CONSUMER}"
        if CLASSIC not in spoken and name in _OF_CLASSIC:
            yield f"{name}: no member speaks the protocol {CLASSIC}"
    is_same = replace(changed, settings=plan.settings) == plan
    if is_same and Settings.from_kafka(changed.settings) == Settings.from_kafka(plan.settings):
        yield "all that was asked for: it is so already"
