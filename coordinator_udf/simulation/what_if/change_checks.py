"""Looks whether a change can be made to a group, before any of its worlds is run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from coordinator_udf.assignors import configured_assignors
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.settings.coordinator import Settings, SettingsError
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.what_if.change import CLASSIC, CONSUMER, Change, changed_plan, protocols
from coordinator_udf.simulation.what_if.properties import STRATEGIES
from coordinator_udf.user_errors import InputError

#: The assignors that there are for a group of a protocol.
_ASSIGNORS: Final[Mapping[str, tuple[str, ...]]] = {CLASSIC: tuple(STRATEGIES), CONSUMER: ("uniform", "range")}


def checked_plan(group_id: str, plan: WorldPlan, change: Change) -> WorldPlan:
    """Returns the plan of a group's world with a change, if nobody refuses it at once.

    Raises:
        InputError: a member can't be set up like that, or its coordinator would refuse it as it isn't refused now.
        SettingsError: the coordinator can't be set up like that, or there is no such assignor for the group.
    """
    _check_assignor(group_id, protocols(plan, change), change.assignor)
    try:
        changed = changed_plan(plan, change)
    except SettingsError as error:
        raise SettingsError(f"{group_id}: {error}") from error
    was = _refusals(group_id, plan)
    for name, why in _refusals(group_id, changed).items():
        if was.get(name) != why:
            raise InputError(why)
    return changed


def _check_assignor(group_id: str, spoken: frozenset[str], assignor: str | None) -> None:
    expected = [
        name
        for name in dict.fromkeys(name for protocol in sorted(spoken) for name in _ASSIGNORS[protocol])
        if all(name in _ASSIGNORS[protocol] for protocol in spoken)
    ]
    if assignor is not None and assignor not in expected:
        speaks = f"the protocol {next(iter(spoken))}" if len(spoken) == 1 else "both group protocols"
        raise SettingsError(f"assignor is {assignor!r}, expected {', '.join(expected)}, for {group_id} speaks {speaks}")


def _refusals(group_id: str, plan: WorldPlan) -> dict[str, str]:
    """Returns which processes are refused whatever else happens, by their names, with why in words.

    Raises:
        InputError: a member can't be set up like that.
    """
    settings = Settings.from_kafka(plan.settings)
    found = {}
    for member in plan.members:
        why = _refusal(f"{member.client_id} of {group_id}", _config(member), settings)
        if why is not None:
            found[member.name] = why
    return found


def _config(member: MemberPlan) -> MemberConfig:
    try:
        return member.config()
    except BadRequest as error:
        raise InputError(f"{member.client_id} of {member.group_id} can't be set up like that: {error}") from error


def _refusal(who: str, config: MemberConfig, settings: Settings) -> str | None:
    if config.group_protocol == CLASSIC:
        least_ms, most_ms = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if least_ms <= config.session_timeout_ms <= most_ms:
            return None
        bound = "group.min" if config.session_timeout_ms < least_ms else "group.max"
        return (
            f"{who} would be refused: session.timeout.ms is {config.session_timeout_ms}, expected {least_ms} to "
            f"{most_ms}; --set {bound}.session.timeout.ms=... to let it in"
        )
    known = configured_assignors(settings.group_consumer_assignors)
    if config.group_remote_assignor is None or config.group_remote_assignor in known:
        return None
    return (
        f"{who} would be refused: group.remote.assignor is {config.group_remote_assignor!r}, expected "
        f"{', '.join(known)}; --assignor {next(iter(known))} to let it in, or --set group.consumer.assignors=..."
    )
