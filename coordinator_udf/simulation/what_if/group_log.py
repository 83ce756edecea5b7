"""One group of a broker's request log as the plan of a world, and what really happened to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles
from typing import Any

import re2

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.topics import TopicHistory, TopicTraces, topic_changes, topic_history
from coordinator_udf.simulation.plan import Hang, MemberPlan, NetworkPlan, Removal, Stall, TopicPlan, WorldPlan
from coordinator_udf.simulation.what_if.behaviour import (
    Behaviour,
    accepted_session_ms,
    behaviour_of,
    was_let_in,
)
from coordinator_udf.simulation.what_if.processes import Process, arrived_ms, find_processes, find_removals
from coordinator_udf.simulation.what_if.rebalances import SESSION_EXPIRED, Rebalance, recorded_rebalances

#: Room before the first event of a world, so that nothing has to happen before it begins.
_LEAD_MS = 1_000
#: A join phase that ended so soon after the first member came had no initial delay.
_NO_DELAY_MS = 1_000
#: Kafka's default of group.initial.rebalance.delay.ms.
_DEFAULT_DELAY_MS = 3_000
#: A process's messages up to the arrival of its first request to join: the lookup of its coordinator, and the answer.
_REQUESTS_TO_JOIN = 3
#: Kafka's default of group.consumer.session.timeout.ms.
_DEFAULT_SESSION_MS = 45_000
#: As late as this a new epoch has its assignment (group.consumer.assignment.interval.ms).
_ASSIGNED_WITHIN_MS = 1_000
#: So many heartbeats tell how late a member's are; one with fewer is taken to be as late as all together.
_ENOUGH_BEATS = 8


@dataclass(frozen=True, slots=True)
class GroupLog:
    """A group of a log.

    Attributes:
        plan: the world in which its members do again what they did.
        rebalances: what really happened.
        unknown: what the log doesn't tell, in words.
    """

    group_id: str
    plan: WorldPlan
    partitions: tuple[TopicPartition, ...]
    rebalances: tuple[Rebalance, ...]
    first_disturbance_ms: float | None
    unknown: tuple[str, ...]


def read_groups(entries: Sequence[Entry], settings: Mapping[str, Any]) -> list[GroupLog]:
    """Reads the groups of a log that members joined.

    Args:
        settings: the coordinator's, as far as they are known, under Kafka's names.
    """
    if not entries:
        return []
    of_log_ms = [*sorted(map(arrived_ms, entries)), max(entry.written_us for entry in entries) / 1000]
    history = _topic_history(entries)
    leaves: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.api == "LeaveGroup":
            leaves[entry.request.get("groupId") or ""].append(entry)
    return [
        group
        for group_id, processes in find_processes(entries).items()
        if (group := _group(processes, leaves[group_id], history, of_log_ms, settings)) is not None
    ]


def _topic_history(entries: Sequence[Entry]) -> TopicHistory:
    traces = TopicTraces()
    for entry in entries:
        traces.note(entry)
    return topic_history(traces, [change for entry in entries for change in topic_changes(entry)], lambda: entries)


def _group(
    processes: list[Process],
    leaves: Sequence[Entry],
    history: TopicHistory,
    of_log_ms: Sequence[float],
    settings: Mapping[str, Any],
) -> GroupLog | None:
    group_id = processes[0].group_id
    removals = find_removals(leaves, processes)
    unknown = [
        f"what {process.client_id} ({process.run}) would do, which was never let in: it is left out"
        for process in processes
        if not was_let_in(process)
    ]
    processes = [process for process in processes if was_let_in(process)]
    behaviours = [behaviour_of(process, processes, of_log_ms) for process in processes]
    unknown += [text for behaviour in behaviours for text in behaviour.unknown]
    rebalances = recorded_rebalances(processes, removals)
    if not rebalances:
        return None
    start_ms = int(min(behaviour.start_ms for behaviour in behaviours)) - _LEAD_MS
    topics = _topics(behaviours, history, processes, start_ms, unknown)
    grown_ms = [start_ms + topic.at_ms for topic in topics if topic.at_ms > 0]
    deleted = {topic.name for topic in topics if not topic.partitions}
    network = _network(behaviours)
    everybodys_ms = tuple(late for behaviour in behaviours for late in behaviour.lateness_ms)
    plan = WorldPlan(
        members=tuple(_member(group_id, behaviour, start_ms, everybodys_ms, network) for behaviour in behaviours),
        topics=topics,
        end_ms=int(of_log_ms[-1]) - start_ms,
        settings={**_settings(behaviours, rebalances, grown_ms, unknown), **settings},
        network=network,
        removals=tuple(
            Removal(round(time_ms) - start_ms, f"{process.client_id}/{process.run}")
            for process in processes
            for time_ms in process.removed_ms
        ),
        sync_delays_ms=_delays([turn for behaviour in behaviours for turn in behaviour.turnaround_ms], network),
        assign_delays_ms=_delays([turn for behaviour in behaviours for turn in behaviour.assigning_ms], network),
        start_ms=start_ms,
    )
    disturbances = [
        time
        for behaviour in behaviours
        for time in (behaviour.close_ms, behaviour.crash_ms, *(stall.at_ms for stall in behaviour.stalls))
        if time is not None
    ]
    return GroupLog(
        group_id,
        plan,
        tuple(
            dict.fromkeys(
                TopicPartition(one.name, number)
                for one in topics
                if one.name not in deleted
                for number in range(one.partitions)
            )
        ),
        tuple(rebalances),
        min(disturbances, default=None),
        tuple(unknown),
    )


def _member(
    group_id: str, behaviour: Behaviour, start_ms: int, everybodys_ms: tuple[float, ...], network: NetworkPlan
) -> MemberPlan:
    own_ms = behaviour.lateness_ms if len(behaviour.lateness_ms) >= _ENOUGH_BEATS else everybodys_ms

    def at(time_ms: float | None) -> int | None:
        return None if time_ms is None else round(time_ms) - start_ms

    def sent(arrived_ms: Iterable[float]) -> tuple[int, ...]:
        return tuple(round(time_ms - sum(network.latency_ms) / 2) - start_ms for time_ms in arrived_ms)

    return MemberPlan(
        client_id=behaviour.process.client_id,
        run=behaviour.process.run,
        group_id=group_id,
        topics=behaviour.topics,
        regex=behaviour.regex,
        # Some clients take long from their first request to the one that joins: it is to come when it came.
        start_ms=round(behaviour.joined_ms - _REQUESTS_TO_JOIN * sum(network.latency_ms) / 2) - start_ms,
        properties=behaviour.properties,
        close_at_ms=None if behaviour.close_ms is None else sent([behaviour.close_ms])[0],
        crash_at_ms=at(behaviour.crash_ms),
        stalls=tuple(Stall(stall.at_ms - start_ms, stall.length_ms) for stall in behaviour.stalls),
        hangs=tuple(Hang(hang.at_ms - start_ms, hang.length_ms) for hang in behaviour.hangs),
        lateness_ms=tuple(sorted(map(round, own_ms))) or (0,),
        beats_ms=sent(behaviour.beats_ms),
        looks_ms=sent(behaviour.looks_ms),
        sent_ms=tuple((api, round(came) - start_ms, sent([went])[0]) for api, came, went in behaviour.sent_ms),
        resubscribes=tuple((sent([time])[0], topics) for time, topics in behaviour.resubscribed_ms),
        learns_ms=sent(behaviour.learned_ms),
        member_ids=behaviour.member_ids,
    )


def _settings(
    behaviours: list[Behaviour], rebalances: list[Rebalance], grown_ms: Collection[float], unknown: list[str]
) -> dict[str, Any]:
    """Returns the coordinator's settings that the log tells of."""
    settings: dict[str, Any] = {}
    beats = [int(b.properties["heartbeat.interval.ms"]) for b in behaviours if "group.protocol" in b.properties]
    if beats:
        settings["group.consumer.heartbeat.interval.ms"] = beats[0]
        settings["group.consumer.min.heartbeat.interval.ms"] = min(5_000, beats[0])
        settings["group.consumer.max.heartbeat.interval.ms"] = max(15_000, beats[0])
        # The default, if it isn't told, wouldn't do for a heartbeat interval that is longer.
        settings["group.consumer.session.timeout.ms"] = max(_DEFAULT_SESSION_MS, beats[0] + 1)
        settings["group.consumer.max.session.timeout.ms"] = max(60_000, beats[0] + 1)
        session_ms = _consumer_session_ms(behaviours, rebalances, grown_ms)
        if session_ms is None:
            unknown.append("the session timeout of the consumer protocol is the broker's, which its log doesn't tell")
        else:
            # No coordinator would have been set to less.
            session_ms = max(session_ms, beats[0] + 1)
            settings["group.consumer.session.timeout.ms"] = session_ms
            settings["group.consumer.min.session.timeout.ms"] = min(45_000, session_ms)
            settings["group.consumer.max.session.timeout.ms"] = max(60_000, session_ms)
            unknown.append(
                f"the consumer protocol's session timeout is taken to be {session_ms} ms, by who was expelled"
            )
    else:
        first = rebalances[0]
        is_delayed = first.duration_ms >= _NO_DELAY_MS
        settings["group.initial.rebalance.delay.ms"] = _DEFAULT_DELAY_MS if is_delayed else 0
    sessions = [asked for behaviour in behaviours if (asked := accepted_session_ms(behaviour.process)) is not None]
    if sessions:
        settings["group.min.session.timeout.ms"] = max(0, min(6_000, *sessions))
        settings["group.max.session.timeout.ms"] = max(1_800_000, *sessions)
    return settings


def _consumer_session_ms(
    behaviours: list[Behaviour], rebalances: list[Rebalance], grown_ms: Collection[float]
) -> int | None:
    """Returns the session timeout that explains when members that fell silent were expelled.

    The others hear of it with their next heartbeats, so it is up to an interval less than what was seen: the default,
    else a round number of seconds.

    Args:
        grown_ms: when topics grew, of which members hear just so.
    """
    interval_ms = max(int(b.properties["heartbeat.interval.ms"]) for b in behaviours)
    found = []
    for rebalance in rebalances:
        is_of_growth = any(0 <= rebalance.start_ms - time <= interval_ms + _ASSIGNED_WITHIN_MS for time in grown_ms)
        if rebalance.trigger != SESSION_EXPIRED or is_of_growth:
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
    for step_ms in (_DEFAULT_SESSION_MS, 5_000, 1_000):
        session_ms = int(longest_ms // step_ms) * step_ms
        if session_ms > max(0, longest_ms - interval_ms) and (step_ms < _DEFAULT_SESSION_MS or session_ms == step_ms):
            return session_ms
    return max(1_000, int(longest_ms // 1_000) * 1_000)


def _comes_after(later: Behaviour, earlier: Behaviour) -> bool:
    """Returns whether a process takes the place of a static member's that ended."""
    instance_id = earlier.properties.get("group.instance.id")
    is_same = instance_id is not None and later.properties.get("group.instance.id") == instance_id
    return is_same and later.start_ms > earlier.start_ms


def _network(behaviours: list[Behaviour]) -> NetworkPlan:
    """Returns the latency that explains how fast members went on at best after an answer: half of it each way."""
    turns = sorted(turn for behaviour in behaviours for turn in (*behaviour.turnaround_ms, *behaviour.assigning_ms))
    least_ms = max(1, round(quantiles(turns, n=10)[0] / 2)) if len(turns) > 3 else 1
    return NetworkPlan((least_ms, least_ms))


def _delays(turns_ms: Iterable[float], network: NetworkPlan) -> tuple[int, ...]:
    """Returns how much longer than the network explains members took to go on once they were answered JoinGroup."""
    return tuple(max(0, round(turn - sum(network.latency_ms))) for turn in sorted(turns_ms)) or (0,)


def _records_s(topic: str, processes: Iterable[Process]) -> float:
    """Returns how many records a second a partition of a topic had, by the offsets that were committed; on average."""
    first: dict[int, tuple[float, int]] = {}
    last: dict[int, tuple[float, int]] = {}
    for process in processes:
        for entry in process.of("OffsetCommit"):
            for named in entry.request.get("topics", ()):
                for place in named["partitions"] if named.get("name") == topic else ():
                    committed = arrived_ms(entry), place["committedOffset"]
                    first.setdefault(place["partitionIndex"], committed)
                    last[place["partitionIndex"]] = max(last.get(place["partitionIndex"], committed), committed)
    rates = [
        1000 * (last[number][1] - offset) / (last[number][0] - time_ms)
        for number, (time_ms, offset) in first.items()
        if last[number][0] > time_ms
    ]
    return max(0.0, fmean(rates)) if rates else 0.0


def _matching(regex: str | None, names: Iterable[str]) -> set[str]:
    """Returns the names that a pattern matches; none if it is none, for the coordinator refuses it."""
    options = re2.Options()
    options.log_errors = False
    try:
        return set() if regex is None else set(filter(re2.compile(regex, options).fullmatch, names))
    except re2.error:
        return set()


def _topics(
    behaviours: list[Behaviour], history: TopicHistory, processes: list[Process], start_ms: int, unknown: list[str]
) -> tuple[TopicPlan, ...]:
    """Returns the topics that members want, as far as the log tells of them, and their growth."""
    wanted = {name for behaviour in behaviours for name in behaviour.topics}
    wanted |= {name for behaviour in behaviours for _, names in behaviour.resubscribed_ms for name in names}
    moments = [(0, history.at_start), *history.changes]
    named = {topic.name for _, topics in moments for topic in topics}
    for behaviour in behaviours:
        wanted |= _matching(behaviour.regex, named)
    partitions: dict[str, int] = {}
    plans = []
    for ts_us, topics in moments:
        here = {topic.name: topic.partitions for topic in topics if topic.name in wanted}
        for name, count in here.items():
            if count > partitions.get(name, 0):
                partitions[name] = count
                plans.append(TopicPlan(name, count, max(0, ts_us // 1000 - start_ms), _records_s(name, processes)))
        for name in [name for name, count in partitions.items() if count and name not in here]:
            partitions[name] = 0
            plans.append(TopicPlan(name, 0, max(0, ts_us // 1000 - start_ms)))
    deleted = [name for name, count in partitions.items() if not count]
    unknown += [f"who should have the partitions of {name} when it is deleted: they aren't counted" for name in deleted]
    unknown += [f"the partitions of the topic {name}, which is left out" for name in sorted(wanted - partitions.keys())]
    return tuple(plans)
