"""One group of a broker's request log as the plan of a world, and what really happened to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.measures import Born
from coordinator_udf.simulation.plan import Hang, MemberPlan, NetworkPlan, Refusal, Removal, Stall, TopicPlan, WorldPlan
from coordinator_udf.simulation.process_names import process_name
from coordinator_udf.simulation.what_if.behaviour import Behaviour, behaviour_of, was_let_in
from coordinator_udf.simulation.what_if.coordinator_settings import coordinator_settings
from coordinator_udf.simulation.what_if.group_sizes import size_settings
from coordinator_udf.simulation.what_if.names import name_apart
from coordinator_udf.simulation.what_if.older_members import join_before, unseen_members, what_they_had
from coordinator_udf.simulation.what_if.other_kinds import not_simulated
from coordinator_udf.simulation.what_if.pace import delays, network_of
from coordinator_udf.simulation.what_if.processes import (
    MEMBERS_APIS,
    LoggedProcess,
    arrived_ms,
    find_processes,
    find_removals,
)
from coordinator_udf.simulation.what_if.rebalances import Rebalance, recorded_rebalances
from coordinator_udf.simulation.what_if.restarts import Restarts, lost_states
from coordinator_udf.simulation.what_if.topics import deleted_topics, topics_of_log, wanted_from_ms, wanted_topics

#: Room before the first event of a world, so that nothing has to happen before it begins.
_LEAD_MS = 1_000
#: A process's messages up to the arrival of its first request to join: the lookup of its coordinator, and the answer.
_REQUESTS_TO_JOIN = 3
#: So many heartbeats tell how late a member's are; one with fewer is taken to be as late as all together.
_ENOUGH_BEATS = 8


@dataclass(frozen=True, slots=True)
class GroupLog:
    """A group of a log.

    Attributes:
        plan: the world in which its members do again what they did.
        formed_ms: when it was first formed, or when the log began, if it has members that are older; from the start of
            the world.
        partitions: those whose owners are counted, each with from when on, in milliseconds since the epoch.
        rebalances: what really happened.
        unknown: what the log doesn't tell, in words.
    """

    group_id: str
    plan: WorldPlan
    formed_ms: int
    partitions: Born
    rebalances: tuple[Rebalance, ...]
    unknown: tuple[str, ...]


def read_groups(entries: Sequence[Entry], settings: Mapping[str, Any]) -> list[GroupLog]:
    """Reads the groups of a log that consumers joined; those of other members (`not_simulated`) are left out.

    Args:
        settings: the coordinator's, as far as they are known, under Kafka's names.
    """
    if not any(entry.api in MEMBERS_APIS for entry in entries):
        return []
    log = _Log(entries)
    others = not_simulated(entries)
    return [
        group
        for group_id, processes in find_processes(entries).items()
        if group_id not in others and (group := _group(processes, log, settings)) is not None
    ]


class _Log:
    """What a whole log tells, of whatever group.

    Attributes:
        of_log_ms: when requests of anybody arrived, and last when the log ended, in order.
        begun_ms: when the first request of a group's member arrived; topics may have been told of long before.
        leaves: by group.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.of_log_ms = [*sorted(map(arrived_ms, entries)), max(entry.written_us for entry in entries) / 1000]
        self.begun_ms = int(min(arrived_ms(entry) for entry in entries if entry.api in MEMBERS_APIS))
        self.topics = topics_of_log(entries)
        self.restarts = Restarts(entries)
        self.leaves: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            if entry.api == "LeaveGroup":
                self.leaves[entry.request.get("groupId") or ""].append(entry)


def _group(processes: list[LoggedProcess], log: _Log, settings: Mapping[str, Any]) -> GroupLog | None:
    group_id = processes[0].group_id
    removals = find_removals(log.leaves[group_id], processes)
    unknown = list(name_apart(processes, log.of_log_ms[-1]))
    unknown += [
        f"what {process.name} ({process.run}) would do, which was never let in: it is left out"
        for process in processes
        if not was_let_in(process)
    ]
    sizes = size_settings(processes)
    processes = [process for process in processes if was_let_in(process)]
    if not processes:
        return None
    behaviours = [behaviour_of(process, processes, log.of_log_ms, log.restarts) for process in processes]
    unknown += what_they_had(behaviours, processes)
    unknown += [text for behaviour in behaviours for text in behaviour.unknown]
    begun_ms = log.begun_ms
    present = join_before(behaviours, begun_ms)
    start_ms = int(min(behaviour.start_ms for behaviour in present)) - _LEAD_MS
    plan = replace(
        _plan(group_id, present, start_ms), topics=wanted_topics(present, log.topics, processes, start_ms, unknown)
    )
    rebalances = recorded_rebalances(processes, removals, plan.topics_changed_ms())
    has_older = any(process.is_older for process in processes)
    if not (rebalances or has_older):
        return None
    unknown += unseen_members(behaviours, rebalances)
    end_ms = int(log.of_log_ms[-1])
    failovers = list(log.restarts.failovers(group_id, begun_ms if has_older else start_ms, end_ms))
    unknown += lost_states(processes, failovers)
    plan = replace(
        plan,
        failovers=tuple(replace(failover, at_ms=failover.at_ms - start_ms) for failover in failovers),
        end_ms=end_ms - start_ms,
        begin_ms=begun_ms - start_ms if has_older else 0,
        settings=coordinator_settings(present, rebalances, {**sizes, **settings}, unknown),
    )
    formed_ms = plan.begin_ms if has_older else int(rebalances[0].end_ms) - start_ms
    return GroupLog(
        group_id, plan, formed_ms, _counted(plan.topics, present, start_ms), tuple(rebalances), tuple(unknown)
    )


def _plan(group_id: str, behaviours: Sequence[Behaviour], start_ms: int) -> WorldPlan:
    """Returns the plan of what a group's members do, from their behaviour, with nothing said of their coordinator."""
    paces = [behaviour.pace for behaviour in behaviours]
    network = network_of(paces)
    everybodys_ms = tuple(late for behaviour in behaviours for late in behaviour.lateness_ms)
    plan = WorldPlan(
        members=tuple(_member(group_id, behaviour, start_ms, everybodys_ms, network) for behaviour in behaviours),
        topics=(),
        end_ms=0,
        network=network,
        removals=tuple(
            Removal(round(time_ms) - start_ms, process_name(behaviour.process.name, behaviour.process.run))
            for behaviour in behaviours
            for time_ms in behaviour.process.removed_ms
        ),
        start_ms=start_ms,
    )
    return replace(plan, **delays(paces, network))


def _counted(topics: Sequence[TopicPlan], behaviours: Sequence[Behaviour], start_ms: int) -> dict[TopicPartition, int]:
    """Returns the partitions whose owners are counted, and from when on there were such that somebody wanted.

    Those of topics that are deleted aren't counted.
    """
    deleted = deleted_topics(topics)
    born: dict[TopicPartition, int] = {}
    for topic in topics:
        if topic.name not in deleted:
            from_ms = max(start_ms + topic.at_ms, int(wanted_from_ms(topic.name, behaviours)))
            for number in range(topic.partitions):
                born.setdefault(TopicPartition(topic.name, number), from_ms)
    return born


def _member(
    group_id: str, behaviour: Behaviour, start_ms: int, everybodys_ms: tuple[float, ...], network: NetworkPlan
) -> MemberPlan:
    is_named_so = behaviour.process.name == behaviour.process.client_id
    own_ms = behaviour.lateness_ms if len(behaviour.lateness_ms) >= _ENOUGH_BEATS else everybodys_ms

    def at(time_ms: float | None) -> int | None:
        return None if time_ms is None else round(time_ms) - start_ms

    def sent(arrived_ms: Iterable[float]) -> tuple[int, ...]:
        return tuple(round(time_ms - sum(network.latency_ms) / 2) - start_ms for time_ms in arrived_ms)

    return MemberPlan(
        client_id=behaviour.process.name,
        shared_client_id=None if is_named_so else behaviour.process.client_id,
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
        refusals=tuple(
            Refusal(one.at_ms - start_ms, max(1, one.length_ms - sum(network.latency_ms) // 2))
            for one in behaviour.refusals
        ),
        hangs=tuple(Hang(hang.at_ms - start_ms, hang.length_ms) for hang in behaviour.hangs),
        wakes_when_due=behaviour.properties.get("group.protocol") == "consumer",
        lateness_ms=tuple(sorted(map(round, own_ms))) or (0,),
        beats_ms=sent(behaviour.beats_ms),
        acks_ms=sent(behaviour.acks_ms),
        looks_ms=sent(behaviour.looks_ms),
        sent_ms=tuple((api, round(came) - start_ms, sent([went])[0]) for api, came, went in behaviour.sent_ms),
        answered_late_ms=tuple(
            (api, round(came) - start_ms, round(took)) for api, came, took in behaviour.answered_late_ms
        ),
        resubscribes=tuple((sent([time])[0], topics) for time, topics in behaviour.resubscribed_ms),
        learns_ms=sent(behaviour.learned_ms),
        rejoins=tuple((first, last) for first, last in map(sent, behaviour.rejoined_ms)),
        member_ids=behaviour.member_ids,
    )
