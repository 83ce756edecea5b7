"""Stretches of time in which a world only repeats itself: settled members send heartbeats and commit, nothing else.

After a period, the least common multiple of all intervals in it, such a world is what it was, later. So whole periods
of it are left out: what is left is run one by one, and comes out as if all had been (but for the commits in between,
which later ones replace). Delays are drawn by the time at which messages are sent, so they don't tell how much was left
out, and which request is the next to get lost is drawn before. A world in which timers are late at random never repeats
itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from math import lcm

from coordinator_udf.simulation.application import repeats_ms
from coordinator_udf.simulation.plan import Cut, Hang, MemberPlan, Refusal, Slow, WorldPlan
from coordinator_udf.simulation.process import Doing, Process

#: On top of the longest interval and the network's delays, in milliseconds, so that every message of it has arrived: a
#: stretch begins as much later. Half and double give the same worlds, event for event (nine worlds of three scenarios),
#: in the same time: messages take a few milliseconds.
_SLACK_MS = 500


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How a settled world repeats itself.

    Attributes:
        period_ms: after so long it is the same.
        settling_ms: after so long it has forgotten what went before.
    """

    period_ms: int
    settling_ms: int


def repeats_itself(plan: WorldPlan) -> bool:
    """Tells whether nothing in a world's stable stretches is left to chance.

    Answers that come once in a while put off the next heartbeat of a KIP-848 member, each time by a drawn backoff; and
    commits that wait until records are worked on drift as records do.
    """
    puts_off = plan.cadence_ms > 0 and any(m.is_kip_848 for m in plan.members)
    return not puts_off and all(_is_on_time(m) for m in plan.members)


def _is_on_time(member: MemberPlan) -> bool:
    return set(member.lateness_ms) == {0} and not member.beats_ms and not member.wakes_when_due


def rhythm(plan: WorldPlan, processes: Collection[Process], at_ms: int, consumer_heartbeat_ms: int) -> Rhythm | None:
    """Returns the rhythm of settled processes; None if an answer may take so long that the next request waits for it.

    Args:
        at_ms: when, in milliseconds from the start.
        consumer_heartbeat_ms: the heartbeat interval that the coordinator tells KIP-848 members.
    """
    intervals = set()
    for process in processes:
        config = process.config
        intervals.add(consumer_heartbeat_ms if process.is_threaded else config.heartbeat_interval_ms)
        polls_ms = config.auto_commit_interval_ms if config.enable_auto_commit else config.max_poll_interval_ms // 3
        intervals.add(repeats_ms(process, polls_ms))
    slowed_ms = max((process.plan.slowed_by_ms(at_ms) for process in processes), default=0)
    answered_ms = 2 * (plan.network.latency_ms[1] + slowed_ms)
    if intervals and min(intervals) <= plan.cadence_ms + answered_ms:
        return None
    if plan.cadence_ms:
        intervals.add(plan.cadence_ms)
    return Rhythm(lcm(*intervals), max(intervals, default=0) + answered_ms + _SLACK_MS)


def learned_ms(plan: WorldPlan, processes: Iterable[Process], happened_ms: int) -> int:
    """Returns when processes have learned how topics changed, in milliseconds from the start; at 0 if none does.

    Classic ones see it when they next ask for metadata, and that comes later each time by as long as the last answer
    took: so such a stretch doesn't repeat itself. Who is to join again, and commits what is of a deleted topic for as
    long as a rebalance may take, doesn't look at metadata meanwhile, and sees it when it asks after that.

    Args:
        happened_ms: when something last happened to them.
    """
    changed_ms = max((topic.at_ms for topic in plan.topics), default=0)
    ages = (process.config.metadata_max_age_ms for process in processes if not process.is_threaded)
    return max(changed_ms, happened_ms) + max(ages, default=0) + _SLACK_MS if changed_ms > 0 else 0


def requests_of(processes: Collection[Process], consumer_heartbeat_ms: int) -> Iterator[tuple[str, int]]:
    """Yields what settled processes send, once for each, with the interval in milliseconds."""
    for process in processes:
        config = process.config
        if process.is_threaded:
            yield "ConsumerGroupHeartbeat", consumer_heartbeat_ms
        else:
            yield "Heartbeat", config.heartbeat_interval_ms
        if config.enable_auto_commit and process.owned:
            yield "OffsetCommit", repeats_ms(process, config.auto_commit_interval_ms)


def is_settled(processes: Collection[Process]) -> bool:
    """Tells whether all processes only wait for time to pass."""
    return all(
        process.is_settled
        and process.doing is Doing.RUNNING
        and process.in_callback is None
        and process.plan.habit is None
        for process in processes
    )


def boundaries_ms(members: Collection[MemberPlan]) -> list[int]:
    """Returns when something changes that is no event: members are away or slow or hang, and no longer."""
    spans: list[Cut | Slow | Hang | Refusal] = []
    for member in members:
        spans += member.cuts
        spans += member.slow
        spans += member.hangs
        spans += member.refusals
    return sorted(time for one in spans for time in (one.at_ms, one.at_ms + one.length_ms))
