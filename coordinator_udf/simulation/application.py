"""When a process's application polls.

Java's two consumers differ in this. In poll the classic one handles all that comes at once. The other one's work is
done by a thread behind it, and the application, which waits for records, sees what that has for it (a callback to run,
a reconciliation to begin) only when it looks again: when records come, when a tenth of a second is over with nothing
assigned, or when its poll is over (AsyncKafkaConsumer.pollForFetches). And it looks twice each time: the thread, told
of a poll while its fetches are under way, wakes it up once more (FetchRequestManager.pollInternal).

A poll at which nothing can happen is left out: a settled member's application polls when an automatic commit is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import ceil

from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.plan import MemberPlan, TopicPlan
from coordinator_udf.simulation.process import Doing, Process

#: As long as an application with nothing assigned waits at most, in milliseconds (retry.backoff.ms).
_NOTHING_ASSIGNED_MS = 100
#: The thread takes so long to wake an application up that has just begun to wait, in milliseconds. With half and
#: double what follows is as much earlier or later: to the 281 events of three rolling deploys come two more, and one
#: is left out.
_WOKEN_MS = 2

#: Tells a number from 0 to 1 that looks drawn, for a name.
Chance = Callable[[str], float]


class Records:
    """The records of a world's topics: those of a partition come evenly, and those of a topic's partitions in turn."""

    def __init__(self, topics: Iterable[TopicPlan], start_ms: int) -> None:
        self._start_ms = start_ms
        self._gap_ms: dict[str, float] = {}
        self._partitions: dict[str, int] = {}
        for topic in topics:
            if topic.records_s > 0 and topic.partitions:
                self._gap_ms[topic.name] = 1000 / topic.records_s
                self._partitions[topic.name] = topic.partitions

    def end_offset(self, partition: TopicPartition, now_ms: int) -> int:
        """Returns how many records a partition has."""
        topic, number = partition
        gap_ms = self._gap_ms.get(topic)
        if gap_ms is None:
            return 0
        partitions = self._partitions[topic]
        offset = int((now_ms - self._start_ms) / gap_ms - (number % partitions) / partitions) + 1
        return max(0, offset)

    def end_offsets(self, partitions: Iterable[TopicPartition], now_ms: int) -> Mapping[TopicPartition, int]:
        """Returns how many records partitions have."""
        end_offset = self.end_offset
        return {partition: end_offset(partition, now_ms) for partition in partitions}

    def next_ms(self, partitions: Iterable[TopicPartition], now_ms: int) -> int | None:
        """Returns when the next record comes to any of some partitions; None if none ever does."""
        times = [
            self._start_ms + (self.end_offset(partition, now_ms) + self._phase(partition)) * gap_ms
            for partition in partitions
            if (gap_ms := self._gap_ms.get(partition.topic)) is not None
        ]
        return max(now_ms + 1, round(min(times))) if times else None

    def last_ms(self, partitions: Iterable[TopicPartition], now_ms: int) -> int | None:
        """Returns when the last record came to any of some partitions; None if none ever did."""
        times = [
            self._start_ms + (self.end_offset(partition, now_ms) - 1 + self._phase(partition)) * gap_ms
            for partition in partitions
            if (gap_ms := self._gap_ms.get(partition.topic)) is not None
        ]
        return max((round(time) for time in times if time <= now_ms), default=None)

    def _phase(self, partition: TopicPartition) -> float:
        return (partition.partition % self._partitions[partition.topic]) / self._partitions[partition.topic]


def processing_until_ms(process: Process, now_ms: int) -> int | None:
    """Returns when an application that works between two polls is through; None if it is in poll."""
    plan = process.plan
    cycle_ms = plan.poll_ms + plan.process_ms
    since_ms = (now_ms - process.loop_ms) % cycle_ms if cycle_ms else 0
    return None if since_ms < plan.poll_ms or not plan.process_ms else now_ms - since_ms + cycle_ms


def works_long(plan: MemberPlan, config: MemberConfig) -> bool:
    """Tells whether an application works longer between two polls than is taken for nothing (retry.backoff.ms)."""
    return plan.process_ms > config.retry_backoff_ms


def repeats_ms(process: Process, interval_ms: int) -> int:
    """Returns how often an application does what is due in an interval of time, and is done in its polls only."""
    if not works_long(process.plan, process.config):
        return interval_ms
    cycle_ms = process.plan.poll_ms + process.plan.process_ms
    return ceil(interval_ms / cycle_ms) * cycle_ms


def polls_then_ms(process: Process, at_ms: int) -> int:
    """Returns when an application polls that has a reason to at a time: if it works long, when it next begins to."""
    return process.loop_ms + repeats_ms(process, at_ms - process.loop_ms)


def next_poll_ms(process: Process, records: Records, now_ms: int, chance: Chance) -> int | None:
    """Returns when an application that has just polled, or waits in poll, looks again; None if never.

    Args:
        chance: tells how far the wait is that an application of a process is in, from 0 to 1.
    """
    if process.doing is not Doing.RUNNING or process.in_callback is not None:
        return None
    if process.is_settled:
        return polls_then_ms(process, _next_settled_poll_ms(process, records, now_ms))
    if process.join_req is not None:
        # It is told of the answer, and until then polls find nothing.
        at_ms = max(now_ms + 1, process.last_poll_ms + process.config.max_poll_interval_ms // 3)
        return polls_then_ms(process, at_ms)
    if not process.is_threaded:
        plan = process.plan
        cycle_ms = max(1, plan.poll_ms + plan.process_ms)
        return now_ms + cycle_ms - (now_ms - process.loop_ms) % cycle_ms
    look_ms = _next_look_ms(process, records, now_ms, chance)
    until_ms = processing_until_ms(process, look_ms) if works_long(process.plan, process.config) else None
    return look_ms if until_ms is None else until_ms


def _next_settled_poll_ms(process: Process, records: Records, now_ms: int) -> int:
    """Returns when an application polls next whose member is settled: when a commit is due."""
    # Before its max.poll.interval.ms is over in any case.
    next_ms = process.last_poll_ms + process.config.max_poll_interval_ms // 3
    # What its poll waited for before it settled is over by the time that it is told of anything new.
    process.waits_for_commit = False
    due_ms = process.commit_due_ms()
    waits = due_ms is None and process.config.enable_auto_commit
    if not waits:
        process.idle_since_ms = None
    elif process.idle_since_ms is None:
        process.idle_since_ms = now_ms
    if waits and process.plan.looks_ms:
        next_ms = now_ms
    elif due_ms is not None:
        next_ms = min(due_ms, next_ms)
        if _wakes_when_due(process):
            next_ms = max(next_ms, _began_ms(process, records, next_ms))
    next_ms = next_ms if next_ms > now_ms else now_ms + _NOTHING_ASSIGNED_MS
    known_ms = process.timekeeper.next_look_ms(next_ms - 1, process.config.auto_commit_interval_ms)
    return next_ms if known_ms is None else known_ms


def first_poll_ms(process: Process, now_ms: int) -> int | None:
    """Returns when a settled application that polled for nothing looks whether its last commit has ended, if it has."""
    since_ms, due_ms = process.idle_since_ms, process.commit_due_ms()
    if since_ms is None or due_ms is None:
        return None
    process.idle_since_ms = None
    polls = max(1, ceil((now_ms - since_ms) / _NOTHING_ASSIGNED_MS))
    return polls_then_ms(process, max(due_ms, since_ms + polls * _NOTHING_ASSIGNED_MS))


def _next_look_ms(process: Process, records: Records, now_ms: int, chance: Chance) -> int:
    """Returns when an application looks again at what its thread has for it."""
    planned_ms = process.poll_at_ms if process.is_watching else None
    if process.plan.looks_ms and planned_ms is not None and planned_ms > now_ms:
        # It has looked just now; what its thread hears in the same millisecond doesn't let it look at another time.
        return planned_ms
    if process.waits_for_commit and process.last_poll_ms != now_ms:
        # Its poll went round and round until this came.
        return now_ms + 1
    if process.last_poll_ms == now_ms and not process.has_looked_twice:
        process.has_looked_twice = True
        return now_ms + _WOKEN_MS
    if process.last_poll_ms != now_ms and planned_ms is not None and planned_ms >= now_ms:
        return planned_ms
    process.has_looked_twice = False
    longest_ms = process.plan.poll_ms if process.owned else min(process.plan.poll_ms, _NOTHING_ASSIGNED_MS)
    waits_ms = max(1, longest_ms if process.last_poll_ms == now_ms else round(chance(process.name) * longest_ms))
    known_ms = process.timekeeper.next_look_ms(now_ms, 2 * process.plan.poll_ms)
    if known_ms is not None:
        return known_ms
    if process.is_told_fatal:
        # It may look as often as it likes: nothing comes any more.
        return now_ms + process.config.max_poll_interval_ms // 3
    if process.owned and _wakes_when_due(process):
        return _wakes_ms(process, records, now_ms)
    if works_long(process.plan, process.config):
        return now_ms + waits_ms
    return _or_after_records_ms(process, records, now_ms, now_ms + waits_ms)


def _or_after_records_ms(process: Process, records: Records, now_ms: int, until_ms: int) -> int:
    """Returns when an application is through with the next records, a time that is told if none come by then."""
    record_ms = records.next_ms(process.owned, now_ms)
    # Fetched, handed over, and worked on.
    return until_ms if record_ms is None or record_ms > until_ms else record_ms + 1 + process.plan.process_ms


def _wakes_when_due(process: Process) -> bool:
    return process.plan.wakes_when_due and not works_long(process.plan, process.config)


def _wakes_ms(process: Process, records: Records, now_ms: int) -> int:
    """Returns when Java's poll next wakes up, or the next one begins (AsyncKafkaConsumer.pollForFetches).

    It waits until records come, its time is over or the next commit is due: for no time if that is due and has to wait
    for another commit's answer. It then goes round until something comes from the network, for which it looks here.
    """
    due_ms = process.commit_due_ms()
    process.waits_for_commit = process.config.enable_auto_commit and (due_ms is None or due_ms <= now_ms)
    began_ms = _began_ms(process, records, now_ms)
    if began_ms > now_ms:
        return began_ms
    poll_ms = max(1, process.plan.poll_ms)
    wakes_ms = began_ms + poll_ms * ((now_ms - began_ms) // poll_ms + 1)
    if due_ms is not None and due_ms > now_ms:
        wakes_ms = min(wakes_ms, due_ms)
    return _or_after_records_ms(process, records, now_ms, wakes_ms)


def _began_ms(process: Process, records: Records, now_ms: int) -> int:
    """Returns when the last poll began, or the next does if the application works on what the last one gave it."""
    last_ms = records.last_ms(process.owned, now_ms)
    return process.loop_ms if last_ms is None else max(process.loop_ms, last_ms + 1 + process.plan.process_ms)
