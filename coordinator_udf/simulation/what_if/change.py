"""What is to be otherwise in a log's world, and the plan of the world in which it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

from coordinator_udf.assignors import configured_assignors
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.what_if.properties import STRATEGIES

CONSUMER: Final = "consumer"
CLASSIC: Final = "classic"

#: KIP-848 members keep their timers in a thread that nothing of the application holds up, unlike classic ones.
_OWN_THREAD_LATENESS_MS = (0, 0, 1, 1, 2)
#: What a member has of one protocol alone.
_OF_CLASSIC = ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms")
_OF_CONSUMER = ("group.protocol", "group.remote.assignor")


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be otherwise. None and empty leave all as it was.

    Attributes:
        settings: the coordinator's, under Kafka's names.
        is_static: whether each client id is a static member's instance id, where it isn't one already.
        assignor: a client's assignor (range, roundrobin, sticky, cooperative-sticky) in a classic group, in one of
            KIP-848 a coordinator's.
        session_timeout_ms, heartbeat_interval_ms: clients' in a classic group, in one of KIP-848 the coordinator's.
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

    def in_options(self) -> list[str]:
        """Returns the options of `muster what-if` that ask for it."""
        options = [f"--set {name}={value}" for name, value in (self.settings or {}).items()]
        options += ["--static"] if self.is_static else []
        named = {
            "assignor": self.assignor,
            "protocol": self.protocol,
            "session-timeout-ms": self.session_timeout_ms,
            "heartbeat-interval-ms": self.heartbeat_interval_ms,
            "max-poll-interval-ms": self.max_poll_interval_ms,
            "coordinator-cadence-ms": self.cadence_ms,
        }
        return options + [f"--{name} {value}" for name, value in named.items() if value is not None]


@dataclass(frozen=True, slots=True)
class _Turn:
    """A change as it comes to a group.

    Attributes:
        was, will_be: the coordinator's settings, before and after.
        is_assigned_otherwise: whether members of a classic group assign otherwise than they did.
    """

    change: Change
    was: Settings
    will_be: Settings
    is_assigned_otherwise: bool


def protocol_of(member: MemberPlan) -> str:
    """Returns the group protocol that a member speaks, under the name that group.protocol has for it."""
    return str(member.properties.get("group.protocol", CLASSIC))


def protocols(plan: WorldPlan, change: Change) -> frozenset[str]:
    """Returns the group protocols that members of a world speak once it is changed."""
    return frozenset(change.protocol or protocol_of(member) for member in plan.members)


def changed_plan(plan: WorldPlan, change: Change) -> WorldPlan:
    """Returns the plan of a world with some settings changed; what they were already isn't touched.

    Raises:
        SettingsError: the coordinator can't be set up like that, or can't have been as it is said to.
    """
    was = Settings.from_kafka(plan.settings)
    settings = _changed_settings(plan, change, was)
    strategies = [member.properties.get("partition.assignment.strategy") for member in plan.members]
    is_assigned_otherwise = change.assignor is not None and any(
        known is not None and known[0] != STRATEGIES.get(change.assignor) for known in strategies
    )
    turn = _Turn(change, was, Settings.from_kafka(settings), is_assigned_otherwise)
    members = tuple(_changed_member(member, turn) for member in plan.members)
    if is_assigned_otherwise and plan.first_assign_delays_ms:
        # Leaders have not run another assignor's code before.
        plan = replace(plan, assign_delays_ms=plan.first_assign_delays_ms)
    return replace(
        plan,
        settings=settings,
        members=members,
        cadence_ms=plan.cadence_ms if change.cadence_ms is None else change.cadence_ms,
    )


def _changed_settings(plan: WorldPlan, change: Change, was: Settings) -> dict[str, Any]:
    told = change.settings or {}
    settings = {**plan.settings, **told}
    if CONSUMER not in protocols(plan, change):
        return settings
    for name, value in (
        ("consumer.session.timeout.ms", change.session_timeout_ms),
        ("consumer.heartbeat.interval.ms", change.heartbeat_interval_ms),
    ):
        if value is not None and (f"group.{name}" in told or value != was.shared_by_groups(name)):
            settings |= _with_bounds(name, value, was, told)
    if change.assignor is not None:
        known = Settings.from_kafka(settings).group_consumer_assignors
        if _is_another(change.assignor, known, plan, change):
            others = [name for name in known if change.assignor not in configured_assignors([name])]
            settings["group.consumer.assignors"] = [change.assignor, *others]
    return settings


def _with_bounds(name: str, value: int, was: Settings, told: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a setting of consumer groups, with bounds that it is within, but for those that were told."""
    least, most = was.bounds_of_groups(name)
    settings = {f"group.{name}": value}
    for bound, is_beyond in (("min", value < least), ("max", value > most)):
        name_of_bound = name.replace("consumer.", f"group.consumer.{bound}.")
        if is_beyond and name_of_bound not in told:
            settings[name_of_bound] = value
    return settings


def _is_another(assignor: str, known: Sequence[str], plan: WorldPlan, change: Change) -> bool:
    """Tells whether an assignor of the coordinator is another than members ask for, or have if they ask for none."""
    default = next(iter(configured_assignors(known)))
    return any(
        (member.properties.get("group.remote.assignor") or default) != assignor
        for member in plan.members
        if (change.protocol or protocol_of(member)) == CONSUMER
    )


def _changed_member(member: MemberPlan, turn: _Turn) -> MemberPlan:
    change, before = turn.change, protocol_of(member)
    protocol = change.protocol or before
    properties = _changed_properties(member, protocol, turn)
    if change.is_static:
        properties.setdefault("group.instance.id", member.client_id)
    if change.max_poll_interval_ms is not None:
        properties["max.poll.interval.ms"] = change.max_poll_interval_ms
    changed = replace(member, properties=properties)
    if protocol != before:
        return replace(
            changed,
            wakes_when_due=protocol == CONSUMER,
            lateness_ms=_OWN_THREAD_LATENESS_MS if protocol == CONSUMER else member.lateness_ms,
            beats_ms=(),
            looks_ms=(),
            sent_ms=(),
            member_ids=_member_ids(member, protocol),
        )
    if properties.get("heartbeat.interval.ms") != member.properties.get("heartbeat.interval.ms"):
        return replace(changed, beats_ms=(), looks_ms=(), sent_ms=(), lateness_ms=_scaled_lateness_ms(member, changed))
    if turn.is_assigned_otherwise:
        # When each went on after JoinGroup was chance, and another assignor takes another time.
        return replace(changed, sent_ms=tuple(one for one in member.sent_ms if one[0] != "SyncGroup"))
    return changed


def _scaled_lateness_ms(member: MemberPlan, changed: MemberPlan) -> tuple[int, ...]:
    """Returns how late heartbeats go out that are further apart than they were, or less far.

    A classic member's thread waits retry.backoff.ms at a time until one is due (AbstractCoordinator.HeartbeatThread),
    each time a little longer: two programs that are 16 ms late in three seconds were 5 ms late in one. Other libraries'
    are taken for Java's. What is not the rule, as when a machine hangs, stays as long as it was.
    """
    if protocol_of(member) == CONSUMER:
        return member.lateness_ms
    times = int(changed.properties["heartbeat.interval.ms"]) / member.config().heartbeat_interval_ms
    more_ms = round(median(member.lateness_ms) * (times - 1))
    return tuple(max(0, late_ms + more_ms) for late_ms in member.lateness_ms)


def _changed_properties(member: MemberPlan, protocol: str, turn: _Turn) -> dict[str, Any]:
    """Returns what a member is set up with that speaks a protocol then, whether or not it did."""
    change, properties = turn.change, dict(member.properties)
    if protocol == CONSUMER:
        if protocol_of(member) != CONSUMER:
            for name in _OF_CLASSIC:
                properties.pop(name, None)
        elif turn.was.group_consumer_heartbeat_interval_ms != turn.will_be.group_consumer_heartbeat_interval_ms:
            properties["heartbeat.interval.ms"] = turn.will_be.group_consumer_heartbeat_interval_ms
        if change.assignor is not None and properties.get("group.remote.assignor") != change.assignor:
            # It is the coordinator's first one.
            properties.pop("group.remote.assignor", None)
        return properties | {"group.protocol": CONSUMER}
    if protocol_of(member) == CONSUMER:
        for name in _OF_CONSUMER:
            properties.pop(name, None)
        # A classic member says its own: that of the group goes on.
        properties["session.timeout.ms"] = turn.was.group_consumer_session_timeout_ms
    if change.assignor is not None:
        properties["partition.assignment.strategy"] = [STRATEGIES[change.assignor]]
    if change.session_timeout_ms is not None:
        properties["session.timeout.ms"] = change.session_timeout_ms
    if change.heartbeat_interval_ms is not None:
        properties["heartbeat.interval.ms"] = change.heartbeat_interval_ms
    return properties


def _member_ids(member: MemberPlan, protocol: str) -> tuple[str, ...]:
    """Returns the recorded ids, though they'd be others: then their order, which is chance, makes no difference.

    Those that classic members get begin with the client id, those that KIP-848 members draw don't.
    """
    if protocol_of(member) == CONSUMER and protocol != CONSUMER:
        return tuple(f"{member.sent_client_id}-{member_id}" for member_id in member.member_ids)
    return member.member_ids
