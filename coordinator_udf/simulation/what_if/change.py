"""What is to be otherwise in a log's world, and the plan of the world in which it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from coordinator_udf.settings.coordinator import Settings, SettingsError
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.what_if.properties import STRATEGIES

#: KIP-848 members keep their timers in a thread that nothing of the application holds up, unlike classic ones.
_OWN_THREAD_LATENESS_MS = (0, 0, 1, 1, 2)


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be otherwise. None and empty leave all as it was.

    Attributes:
        settings: the coordinator's, under Kafka's names.
        is_static: whether each client id is a static member's instance id.
        assignor: a client's assignor (range, roundrobin, sticky, cooperative-sticky), or a coordinator's.
        cadence_ms: how often the coordinator answers.
    """

    settings: Mapping[str, Any] | None = None
    is_static: bool = False
    assignor: str | None = None
    protocol: str | None = None
    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    max_poll_interval_ms: int | None = None
    cadence_ms: int | None = None

    def check(self) -> None:
        """Looks whether the change can be made.

        Raises:
            SettingsError: an assignor that there is not, or a setting that makes no sense.
        """
        known = ("uniform", "range") if self.protocol == "consumer" else tuple(STRATEGIES)
        if self.assignor is not None and self.assignor not in known:
            raise SettingsError(f"assignor is {self.assignor!r}, expected {', '.join(known)}")
        Settings.from_kafka(self.settings or {})


def changed_plan(plan: WorldPlan, change: Change) -> WorldPlan:
    """Returns the plan of a world with some settings changed."""
    settings = {**plan.settings, **(change.settings or {})}
    if change.protocol == "consumer" and change.assignor:
        settings["group.consumer.assignors"] = [change.assignor]
    if change.session_timeout_ms is not None and change.protocol == "consumer":
        settings["group.consumer.session.timeout.ms"] = change.session_timeout_ms
        settings["group.consumer.min.session.timeout.ms"] = min(45_000, change.session_timeout_ms)
    if change.heartbeat_interval_ms is not None and change.protocol == "consumer":
        settings["group.consumer.heartbeat.interval.ms"] = change.heartbeat_interval_ms
        settings["group.consumer.min.heartbeat.interval.ms"] = min(5_000, change.heartbeat_interval_ms)
    if change.assignor is not None and plan.first_assign_delays_ms:
        # Leaders have not run another assignor's code before.
        plan = replace(plan, assign_delays_ms=plan.first_assign_delays_ms)
    return replace(
        plan,
        settings=settings,
        members=tuple(_changed_member(member, change) for member in plan.members),
        cadence_ms=plan.cadence_ms if change.cadence_ms is None else change.cadence_ms,
    )


def _changed_member(member: MemberPlan, change: Change) -> MemberPlan:
    properties = dict(member.properties)
    lateness_ms = member.lateness_ms
    beats_ms, looks_ms, sent_ms = member.beats_ms, member.looks_ms, member.sent_ms
    if change.heartbeat_interval_ms is not None or change.protocol not in {None, properties.get("group.protocol")}:
        beats_ms, looks_ms, sent_ms = (), (), ()
    if change.assignor is not None:
        # When each went on after JoinGroup was chance, and another assignor takes another time.
        sent_ms = tuple(one for one in sent_ms if one[0] != "SyncGroup")
    if change.protocol == "consumer":
        if properties.get("group.protocol") != "consumer":
            lateness_ms = _OWN_THREAD_LATENESS_MS
        for name in ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"):
            properties.pop(name, None)
        properties["group.protocol"] = "consumer"
    elif change.protocol == "classic":
        properties.pop("group.protocol", None)
    if change.is_static:
        properties["group.instance.id"] = member.client_id
    if change.protocol != "consumer" and properties.get("group.protocol") != "consumer":
        if change.assignor:
            properties["partition.assignment.strategy"] = [STRATEGIES[change.assignor]]
        if change.session_timeout_ms is not None:
            properties["session.timeout.ms"] = change.session_timeout_ms
        if change.heartbeat_interval_ms is not None:
            properties["heartbeat.interval.ms"] = change.heartbeat_interval_ms
    if change.max_poll_interval_ms is not None:
        properties["max.poll.interval.ms"] = change.max_poll_interval_ms
    return replace(
        member,
        properties=properties,
        lateness_ms=lateness_ms,
        beats_ms=beats_ms,
        looks_ms=looks_ms,
        sent_ms=sent_ms,
        member_ids=_member_ids(member, properties),
    )


def _member_ids(member: MemberPlan, properties: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the recorded ids, though they'd be others: then their order, which is chance, makes no difference.

    Those that classic members get begin with the client id, those that KIP-848 members draw don't.
    """
    was_consumer = member.properties.get("group.protocol") == "consumer"
    if was_consumer and properties.get("group.protocol") != "consumer":
        return tuple(f"{member.client_id}-{member_id}" for member_id in member.member_ids)
    return member.member_ids
