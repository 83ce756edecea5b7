"""How the coordinator of a group was set up, as far as its log tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator_udf.settings.coordinator import FIELDS, SETTINGS_OF_GROUPS
from coordinator_udf.simulation.what_if.behaviour import Behaviour
from coordinator_udf.simulation.what_if.processes import arrived_ms
from coordinator_udf.simulation.what_if.properties import accepted_session_ms
from coordinator_udf.simulation.what_if.rebalances import SESSION_EXPIRED, Rebalance

#: A join phase that ended so soon after the first member came had no initial delay.
_NO_DELAY_MS = 1_000


def coordinator_settings(
    behaviours: list[Behaviour],
    rebalances: list[Rebalance],
    told: Mapping[str, Any],
    unknown: list[str],
) -> dict[str, Any]:
    """Returns the coordinator's settings, under Kafka's names: those that are told, and what a group's log tells.

    Args:
        told: settings that are known from elsewhere.
        unknown: takes in words what the log doesn't tell.
    """
    settings: dict[str, Any] = {}
    beats = [int(b.properties["heartbeat.interval.ms"]) for b in behaviours if "group.protocol" in b.properties]
    if beats:
        settings["group.consumer.heartbeat.interval.ms"] = beats[0]
        settings |= _at_most("group.consumer.min.heartbeat.interval.ms", beats[0])
        settings |= _at_least("group.consumer.max.heartbeat.interval.ms", beats[0])
        # The default, if it isn't told, wouldn't do for a heartbeat interval that is longer.
        settings |= _at_least("group.consumer.session.timeout.ms", beats[0] + 1)
        settings |= _at_least("group.consumer.max.session.timeout.ms", beats[0] + 1)
        if "group.consumer.session.timeout.ms" not in told:
            settings |= _guessed_session(_consumer_session_ms(behaviours, rebalances), beats[0], unknown)
    elif not any(behaviour.process.is_older for behaviour in behaviours):
        first = rebalances[0]
        is_delayed = first.duration_ms >= _NO_DELAY_MS
        delay = "group.initial.rebalance.delay.ms"
        settings[delay] = FIELDS[delay].default if is_delayed else 0
    else:
        unknown.append("the initial rebalance delay, for the group was there before the log: Kafka's default is taken")
    sessions = [asked for behaviour in behaviours if (asked := accepted_session_ms(behaviour.process)) is not None]
    if sessions:
        settings |= _at_most("group.min.session.timeout.ms", max(0, min(sessions)))
        settings |= _at_least("group.max.session.timeout.ms", max(sessions))
    return {**settings, **_bounds_of(told, settings), **told}


def _guessed_session(session_ms: int | None, heartbeat_ms: int, unknown: list[str]) -> dict[str, int]:
    """Returns the session timeout of consumer groups, with its bounds, that explains expulsions, if one does."""
    if session_ms is None:
        unknown.append("the session timeout of the consumer protocol is the broker's, which its log doesn't tell")
        return {}
    # No coordinator would have been set to less.
    session_ms = max(session_ms, heartbeat_ms + 1)
    unknown.append(f"the consumer protocol's session timeout is taken to be {session_ms} ms, by who was expelled")
    return {
        "group.consumer.session.timeout.ms": session_ms,
        **_at_most("group.consumer.min.session.timeout.ms", session_ms),
        **_at_least("group.consumer.max.session.timeout.ms", session_ms),
    }


def _at_least(name: str, value: int) -> dict[str, int]:
    """Returns Kafka's default of a setting, or more if that wouldn't do."""
    return {name: max(FIELDS[name].default, value)}


def _at_most(name: str, value: int) -> dict[str, int]:
    """Returns Kafka's default of a setting, or less if that wouldn't do."""
    return {name: min(FIELDS[name].default, value)}


def _bounds_of(told: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, int]:
    """Returns the bounds of consumer groups' settings that are told: the coordinator began with them."""
    bounds: dict[str, int] = {}
    for name in SETTINGS_OF_GROUPS:
        value = str(told.get(f"group.{name}", ""))
        # What is no number is refused when all settings are read.
        if value.isdecimal():
            for end, pick in (("min", min), ("max", max)):
                bound = name.replace("consumer.", f"group.consumer.{end}.")
                bounds[bound] = pick(settings.get(bound, FIELDS[bound].default), int(value))
    return bounds


def _consumer_session_ms(behaviours: list[Behaviour], rebalances: list[Rebalance]) -> int | None:
    """Returns the session timeout that explains when members that fell silent were expelled.

    The others hear of it with their next heartbeats, so it is up to an interval less than what was seen: the default,
    else a round number of seconds.
    """
    interval_ms = max(int(b.properties["heartbeat.interval.ms"]) for b in behaviours)
    found = []
    for rebalance in rebalances:
        if rebalance.trigger != SESSION_EXPIRED:
            continue
        found += [
            rebalance.start_ms - arrived_ms(behaviour.process.of("ConsumerGroupHeartbeat")[-1])
            for behaviour in behaviours
            if behaviour.crash_ms is not None
            and behaviour.crash_ms < rebalance.start_ms
            and behaviour.process.of("ConsumerGroupHeartbeat")
            # A static member's place waits for the process that comes after it, if one does.
            and not any(_comes_after(other, behaviour) for other in behaviours)
        ]
    if not found:
        return None
    longest_ms = min(found)
    default_ms: int = FIELDS["group.consumer.session.timeout.ms"].default
    for step_ms in (default_ms, 5_000, 1_000):
        session_ms = int(longest_ms // step_ms) * step_ms
        if session_ms > max(0, longest_ms - interval_ms) and (step_ms < default_ms or session_ms == step_ms):
            return session_ms
    return max(1_000, int(longest_ms // 1_000) * 1_000)


def _comes_after(later: Behaviour, earlier: Behaviour) -> bool:
    """Returns whether a process takes the place of a static member's that ended."""
    instance_id = earlier.properties.get("group.instance.id")
    is_same = instance_id is not None and later.properties.get("group.instance.id") == instance_id
    return is_same and later.start_ms > earlier.start_ms
