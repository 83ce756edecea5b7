"""A scenario: what a family of worlds has in common, read from TOML; each seed draws one world from it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from coordinator_udf.settings.coordinator import Settings, SettingsError
from coordinator_udf.simulation.plan import (
    Cut,
    Failover,
    Hang,
    MemberPlan,
    NetworkPlan,
    Pause,
    Removal,
    Slow,
    Stall,
    TopicPlan,
    WorldPlan,
)
from coordinator_udf.simulation.scenario_checks import WrongField, converted
from coordinator_udf.simulation.scenario_fields import Fault, MembersFields, Scenario, Span, client_ids
from coordinator_udf.user_errors import InputError

#: Seeds of more digits are taken for a slip.
LAST_SEED = 10**18 - 1


def read_scenario(path: Path) -> Scenario:
    """Reads a scenario file.

    Raises:
        InputError: it can't be read, or a field is missing, unknown or can't be; the message names it.
        SettingsError: a setting of the coordinator can't be; the message names the file, too.
    """
    try:
        scenario = converted(tomllib.loads(path.read_text("utf-8-sig")))
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no scenario: {error}") from error
    except WrongField as error:
        raise InputError(f"{path}: {error}") from error
    try:
        Settings.from_kafka(scenario.coordinator)
    except SettingsError as error:
        raise SettingsError(f"{path}: coordinator: {error}") from error
    return scenario


def draw_world(scenario: Scenario, seed: int) -> WorldPlan:
    """Draws the world of a seed."""
    draws = Random(f"{scenario.title}/{seed}")
    names = tuple(topic.name for topic in scenario.topics)
    families = zip(scenario.members, client_ids(scenario), strict=True)
    members = [member for family, ids in families for member in _family(scenario, family, ids, names, draws)]
    topics = [
        TopicPlan(topic.name, topic.partitions, _ms(topic.at_s, draws), topic.records_s) for topic in scenario.topics
    ]
    failovers: list[Failover] = []
    pauses: list[Pause] = []
    removals: list[Removal] = []
    for fault in scenario.faults:
        if fault.kind in {"failover", "pause"}:
            shards = range(scenario.shards) if fault.shard is None else (fault.shard,)
            for _ in range(fault.count):
                at_ms, length_ms = _ms(fault.at_s, draws), _ms(fault.length_s, draws)
                if fault.kind == "failover":
                    failovers += [Failover(at_ms, length_ms, shard=shard) for shard in shards]
                else:
                    pauses += [Pause(at_ms, length_ms, shard) for shard in shards]
        elif fault.kind in {"grow", "delete"}:
            topics += _changed_topic(topics, fault, draws)
        elif fault.kind == "remove":
            removals += _removals(members, fault, draws)
        else:
            members = _disturbed(members, fault, draws)
    plan = WorldPlan(
        members=tuple(members),
        topics=tuple(topics),
        end_ms=round(scenario.end_s * 1000),
        # Its topics are all that there are, as a broker knows that.
        settings={"offsets.topic.partition.check": True, **scenario.coordinator},
        shards=scenario.shards,
        network=NetworkPlan(scenario.network.latency_ms, scenario.network.loss),
        failovers=failovers_apart(failovers),
        pauses=tuple(pauses),
        removals=tuple(removals),
        cadence_ms=scenario.cadence_ms,
        fetches_fail=True,
        quiet_ms=round(scenario.quiet_s * 1000),
    )
    return replace(plan, end_ms=max(plan.end_ms, plan.last_fault_ms() + round(scenario.quiet_s * 1000)))


def _changed_topic(topics: list[TopicPlan], fault: Fault, draws: Random) -> list[TopicPlan]:
    """Returns what becomes of a topic that grows, or is deleted and perhaps made again as it was."""
    before = next(topic for topic in reversed(topics) if topic.name == (fault.topic or topics[0].name))
    at_ms = _ms(fault.at_s, draws)
    if fault.partitions is not None:
        return [replace(before, partitions=fault.partitions, at_ms=at_ms)]
    deleted = replace(before, partitions=0, at_ms=at_ms)
    if fault.back_s is None:
        return [deleted]
    return [deleted, replace(before, at_ms=at_ms + max(1, _ms(fault.back_s, draws)))]


def _family(
    scenario: Scenario, family: MembersFields, ids: list[str], topics: tuple[str, ...], draws: Random
) -> list[MemberPlan]:
    made = []
    for client_id in ids:
        properties: dict[str, Any] = {"group.protocol": family.protocol, **family.properties}
        if family.static:
            properties["group.instance.id"] = client_id
        start_ms = _ms(family.start_s, draws)
        member = MemberPlan(
            client_id,
            1,
            family.group,
            family.topics or topics,
            start_ms,
            properties,
            family.pattern,
            poll_ms=_ms(family.poll_s, draws),
            process_ms=_ms(family.process_s, draws),
            callback_ms=_ms(family.callback_s, draws),
            again_ms=None if family.again_s is None else _ms(family.again_s, draws),
        )
        if family.habit is not None:
            until_s = scenario.end_s - scenario.quiet_s if family.until_s is None else family.until_s
            member = replace(
                member,
                habit=family.habit,
                habit_every_ms=round(family.every_s * 1000),
                crash_at_ms=max(start_ms + 1, _ms(until_s, draws)),
            )
        made.append(member)
    return made


def _disturbed(members: list[MemberPlan], fault: Fault, draws: Random) -> list[MemberPlan]:
    """Returns the members with what a fault does to some of their processes, and the processes that replace these."""
    if fault.kind == "scale":
        return [*members, *_added(members, fault, draws)]
    of_some = fault.kind in {"crash", "stall", "hang", "cut", "slow", "subscribe"}
    chosen = _drawn(members, fault, draws) if of_some else _newest(members, fault)
    changed = list(members)
    start_ms = _ms(fault.at_s, draws)
    for number, place in enumerate(chosen):
        member = changed[place]
        if member.close_at_ms is not None or member.crash_at_ms is not None:
            continue
        in_turn = fault.kind in {"deploy", "migrate"}
        at_ms = start_ms + round(number // fault.wave * fault.every_s * 1000) if in_turn else _ms(fault.at_s, draws)
        changed[place], *more = _after(member, fault, max(at_ms, member.start_ms + 1), draws)
        changed += more
    return changed


def _after(member: MemberPlan, fault: Fault, at_ms: int, draws: Random) -> Iterator[MemberPlan]:
    """Yields a process with what a fault does to it, and the one that replaces it, if one does."""
    length_ms = _ms(fault.length_s, draws)
    match fault.kind:
        case "stall":
            yield replace(member, stalls=(*member.stalls, Stall(at_ms, length_ms)))
        case "hang":
            yield replace(member, hangs=(*member.hangs, Hang(at_ms, length_ms)))
        case "cut":
            yield replace(member, cuts=(*member.cuts, Cut(at_ms, length_ms)))
        case "slow":
            yield replace(member, slow=(*member.slow, Slow(at_ms, length_ms, _ms(fault.by_s, draws))))
        case "subscribe":
            yield replace(member, resubscribes=(*member.resubscribes, (at_ms, fault.topics)))
        case "crash":
            yield replace(member, crash_at_ms=at_ms)
            yield from _next_process(member, fault, at_ms, draws)
        case _:
            beside_ms = 0 if fault.overlap_s is None else _ms(fault.overlap_s, draws)
            yield replace(member, close_at_ms=at_ms + beside_ms)
            yield from _next_process(member, fault, at_ms, draws)


def _next_process(member: MemberPlan, fault: Fault, at_ms: int, draws: Random) -> Iterator[MemberPlan]:
    if fault.overlap_s is not None:
        yield _replacement(member, fault, at_ms)
    elif fault.back_s is not None:
        yield _replacement(member, fault, at_ms + _ms(fault.back_s, draws))


def _is_meant(member: MemberPlan, fault: Fault) -> bool:
    # Nobody can subscribe to a pattern and to topics (IllegalStateException).
    may = fault.kind != "subscribe" or member.regex is None
    return may and member.habit is None and fault.group in {"", member.group_id}


def _newest(members: list[MemberPlan], fault: Fault) -> list[int]:
    """Returns the places of the last process of each member that a fault may happen to."""
    return list({member.client_id: place for place, member in enumerate(members) if _is_meant(member, fault)}.values())


def _drawn(members: list[MemberPlan], fault: Fault, draws: Random) -> list[int]:
    """Draws as many of these as a fault happens to."""
    everybody = _newest(members, fault)
    return draws.sample(everybody, min(fault.count, len(everybody)))


def _removals(members: list[MemberPlan], fault: Fault, draws: Random) -> Iterator[Removal]:
    """Yields which processes' members an administrator removes, and when."""
    for place in _drawn(members, fault, draws):
        yield Removal(max(_ms(fault.at_s, draws), members[place].start_ms + 1), members[place].name)


def _added(members: list[MemberPlan], fault: Fault, draws: Random) -> list[MemberPlan]:
    """Returns more members, set up as the first of each group is, the groups in turn."""
    first = list({member.group_id: member for member in reversed(members) if _is_meant(member, fault)}.values())
    start_ms = _ms(fault.at_s, draws)
    added: list[MemberPlan] = []
    taken = {member.client_id for member in members}
    for number in range(fault.count if first else 0):
        alike = first[number % len(first)]
        names = (f"{alike.client_id}-more{place}" for place in count(number + 1))
        client_id = next(name for name in names if name not in taken)
        taken.add(client_id)
        of_its_own = {"group.instance.id": client_id} if "group.instance.id" in alike.properties else {}
        added.append(
            MemberPlan(
                client_id,
                1,
                alike.group_id,
                alike.topics,
                start_ms + round(number // fault.wave * fault.every_s * 1000),
                {**alike.properties, **of_its_own},
                alike.regex,
                poll_ms=alike.poll_ms,
                process_ms=alike.process_ms,
                callback_ms=alike.callback_ms,
                again_ms=alike.again_ms,
            )
        )
    return added


def _replacement(member: MemberPlan, fault: Fault, start_ms: int) -> MemberPlan:
    properties: Mapping[str, Any] = member.properties
    if fault.kind == "migrate":
        of_classic = {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
        kept = {name: value for name, value in properties.items() if name not in of_classic}
        properties = {**kept, "group.protocol": "consumer"}
    return replace(
        member,
        run=member.run + 1,
        start_ms=start_ms,
        properties=properties,
        stalls=(),
        hangs=(),
        cuts=(),
        slow=(),
        resubscribes=(),
    )


def failovers_apart(failovers: Iterable[Failover]) -> tuple[Failover, ...]:
    """Returns the failovers of which none begins before the one before it of its shard is over."""
    apart: list[Failover] = []
    over_ms: dict[int, int] = {}
    for failover in sorted(failovers, key=lambda one: one.at_ms):
        if failover.at_ms > over_ms.get(failover.shard, -1):
            apart.append(failover)
            over_ms[failover.shard] = failover.at_ms + failover.down_ms
    return tuple(apart)


def _ms(span: Span, draws: Random) -> int:
    if isinstance(span, tuple):
        return round(draws.uniform(span[0], span[1]) * 1000)
    return round(span * 1000)
