"""The topics that a group's members want, as far as a log tells of them: partitions, growth, rate of records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

import re2

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.topics import TopicHistory, TopicTraces, topic_changes, topic_history
from coordinator_udf.simulation.plan import TopicPlan
from coordinator_udf.simulation.what_if.behaviour import Behaviour
from coordinator_udf.simulation.what_if.processes import LoggedProcess, arrived_ms


def topics_of_log(entries: Sequence[Entry]) -> TopicHistory:
    """Returns the topics of a whole log, and how they changed."""
    traces = TopicTraces()
    for entry in entries:
        traces.note(entry)
    return topic_history(traces, [change for entry in entries for change in topic_changes(entry)], lambda: entries)


def _records_s(topic: str, topic_id: str, processes: Iterable[LoggedProcess]) -> float:
    """Returns how many records a second a partition of a topic had, by the offsets that were committed; on average.

    OffsetCommit names topics by their ids from version 10 on.
    """
    first: dict[int, tuple[float, int]] = {}
    last: dict[int, tuple[float, int]] = {}
    for process in processes:
        for entry in process.of("OffsetCommit"):
            for named in entry.request.get("topics", ()):
                is_meant = named.get("name") == topic or named.get("topicId") == topic_id
                for place in named["partitions"] if is_meant else ():
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


def wanted_from_ms(topic: str, behaviours: Iterable[Behaviour]) -> float:
    """Returns when somebody first subscribed to a topic that is wanted, in milliseconds since the epoch."""
    times: list[float] = []
    for behaviour in behaviours:
        if topic in behaviour.topics or _matching(behaviour.regex, (topic,)):
            times.append(behaviour.start_ms)
        times += [time_ms for time_ms, names in behaviour.resubscribed_ms if topic in names]
    return min(times)


def deleted_topics(topics: Iterable[TopicPlan]) -> list[str]:
    """Returns the names of topics that are deleted, also of those that are made again, in the order of that."""
    return list(dict.fromkeys(topic.name for topic in topics if not topic.partitions))


def wanted_topics(
    behaviours: list[Behaviour],
    history: TopicHistory,
    processes: list[LoggedProcess],
    start_ms: int,
    unknown: list[str],
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
        here = {topic.name: topic for topic in topics if topic.name in wanted}
        at_ms = max(0, ts_us // 1000 - start_ms)
        for name, topic in here.items():
            if topic.partitions > partitions.get(name, 0):
                partitions[name] = topic.partitions
                plans.append(TopicPlan(name, topic.partitions, at_ms, _records_s(name, topic.id, processes), topic.id))
        for name in [name for name, count in partitions.items() if count and name not in here]:
            partitions[name] = 0
            plans.append(TopicPlan(name, 0, at_ms))
    unknown += [
        f"who should have the partitions of {name} when it is deleted: they aren't counted"
        for name in deleted_topics(plans)
    ]
    unknown += [f"the partitions of the topic {name}, which is left out" for name in sorted(wanted - partitions.keys())]
    return tuple(plans)
