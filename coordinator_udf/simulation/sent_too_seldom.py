"""Finds members that send heartbeats or commits more seldom than they are to, though their sessions don't end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from coordinator_udf.members.outputs import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.noted import SentTooSeldom
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.process import Doing, Process
from coordinator_udf.simulation.short_polls import polls_too_shortly
from coordinator_udf.simulation.violation import Violation

#: What an interval may be exceeded by, besides retry.backoff.ms, for which each thread of a member may rest.
_SLACK_MS: Final = 100
_COMMIT: Final = "OffsetCommit"


class SeldomSends:
    """Looks whether members of which nothing gets lost or late send what is due, as long as they are stable.

    Heartbeats are due each ``heartbeat.interval.ms`` (KIP-848: ``group.consumer.heartbeat.interval.ms``), commits of
    those that commit automatically each ``auto.commit.interval.ms``, in the next poll then.
    """

    def __init__(self, plan: WorldPlan, history: History) -> None:
        """Makes it for a world in which nothing was sent yet."""
        self._history = history
        beats_ms = Settings.from_kafka(plan.settings).group_consumer_heartbeat_interval_ms
        # Of a topic that is gone nothing is committed.
        commits = not plan.deletes_topics
        #: Within which time processes are to send requests of an API again.
        self._due_ms = {
            member.name: _due_ms(member, plan, beats_ms, commits=commits)
            for member in plan.members
            if member.name in history.always_heard
        }
        #: When processes last sent requests of these, or became stable, by their own clocks.
        self._sent_ms: dict[str, dict[str, int]] = {}
        #: What was told: each process's sends of each API once.
        self._told: set[tuple[str, str]] = set()

    def send(self, process: Process, request: Request, now_ms: int) -> None:
        """Looks at a request that a process sends now, in milliseconds since the epoch."""
        due_ms = self._due_ms.get(process.name)
        if due_ms is None:
            return
        # A classic member that closes sends no heartbeats any more.
        if process.doing is not Doing.RUNNING or not self._history.is_stable(process.name):
            self._sent_ms.pop(process.name, None)
            return
        # What is left out of a world doesn't count.
        clock_ms = now_ms - process.skipped_ms
        sent_ms = self._sent_ms.setdefault(process.name, {})
        if not process.owned:
            # It has nothing to commit.
            sent_ms[_COMMIT] = clock_ms
        for api, within_ms in due_ms.items():
            pause_ms = clock_ms - sent_ms.setdefault(api, clock_ms)
            if pause_ms > within_ms and (process.name, api) not in self._told:
                self._told.add((process.name, api))
                found = SentTooSeldom(now_ms, process.plan.group_id, process.name, api, pause_ms, within_ms)
                self._history.sent_too_seldom.append(found)
            if api == request.api:
                sent_ms[api] = clock_ms


def _due_ms(member: MemberPlan, plan: WorldPlan, consumer_beats_ms: int, *, commits: bool) -> dict[str, int]:
    config = member.config()
    slack_ms = _SLACK_MS + 2 * (config.retry_backoff_ms + plan.network.latency_ms[1]) + plan.cadence_ms
    if member.is_kip_848:
        due_ms = {"ConsumerGroupHeartbeat": consumer_beats_ms + slack_ms}
    else:
        due_ms = {"Heartbeat": config.heartbeat_interval_ms + slack_ms}
    commits_in_polls = config.enable_auto_commit and not member.stalls and not polls_too_shortly(member, plan.network)
    if commits and commits_in_polls:
        polls_ms = 2 * (member.poll_ms + member.process_ms + member.callback_ms)
        due_ms[_COMMIT] = config.auto_commit_interval_ms + polls_ms + slack_ms
    return due_ms


def sent_too_seldom(history: History) -> Iterator[Violation]:
    """Yields which members sent something too seldom."""
    for ts_ms, group_id, process, api, pause_ms, within_ms in history.sent_too_seldom:
        detail = f"{process} has sent no {api} for {pause_ms} ms, expected within {within_ms} ms"
        yield Violation(ts_ms, group_id, "sent too seldom", detail)
