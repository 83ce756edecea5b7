"""Finds members that send what Kafka's don't: without a pause, commits without a cause, or that a static one leaves."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Final

from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.consumer.group_state import LEAVE_GROUP_EPOCH
from coordinator_udf.members.outputs import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.simulation.coordinator import Answered
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.noted import SentWithoutCause
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.violation import Violation

#: So many requests of one API a member may have cause to send in a second: Kafka's own send 22 at most, for each is
#: tried again after retry.backoff.ms (100), and both threads of a classic member may look for the coordinator.
_MOST_A_SECOND: Final = 40
_SECOND_MS: Final = 1_000
_LEAST_PAUSE_MS: Final = 100
#: How many more commits a member may have had cause to than it sent.
_MOST_LEFT: Final = 5


class SentRequests:
    """Counts what the members that keep to the protocol send.

    One that commits automatically has cause to do so each ``auto.commit.interval.ms``, before it joins, before it takes
    an assignment over, and again after an error. One that doesn't never has: applications don't commit by themselves.
    """

    def __init__(self, plan: WorldPlan, history: History) -> None:
        self._configs = {member.name: member.config() for member in plan.members if member.habit is None}
        beats_ms = Settings.from_kafka(plan.settings).group_consumer_heartbeat_interval_ms
        self._paced = {name for name, config in self._configs.items() if _is_paced(config, beats_ms)}
        self._history = history
        self._sent_ms: defaultdict[tuple[str, str], deque[int]] = defaultdict(lambda: deque(maxlen=_MOST_A_SECOND))
        #: When each process last committed, and how many more times it had cause to by then.
        self._left: dict[str, tuple[int, float]] = {}
        self._told: set[tuple[str, str]] = set()

    def send(self, process: str, request: Request, now_ms: int) -> None:
        """Takes note of a request of a process."""
        config = self._configs.get(process)
        if config is None:
            return
        if process in self._paced:
            sent_ms = self._sent_ms[process, request.api]
            is_much = len(sent_ms) == _MOST_A_SECOND and now_ms - sent_ms[0] < _SECOND_MS
            if is_much and not self._history.was_told(process, {"error"}, now_ms - _SECOND_MS):
                # An application that is told errors may poll again at once.
                self._tell(process, request, now_ms, f"more than {_MOST_A_SECOND} times in a second")
            sent_ms.append(now_ms)
        if self._leaves_for_good(request) and config.group_instance_id is not None:
            self._tell(process, request, now_ms, "to leave, though it is static (KIP-345)")
        if request.api == "JoinGroup":
            self.gives_cause(process)
        elif request.api == "OffsetCommit":
            self._commit(process, request, now_ms, config)

    def hear(self, answer: Answered) -> None:
        """Takes note of an answer: a refused commit is tried again, and one goes before an assignment's taking over."""
        body = answer.body
        if answer.request.api == "OffsetCommit":
            if any(place["errorCode"] for topic in body["topics"] for place in topic["partitions"]):
                self.gives_cause(answer.connection.member)
        elif answer.request.api == "ConsumerGroupHeartbeat" and body.get("assignment") is not None:
            self.gives_cause(answer.connection.member)

    def gives_cause(self, process: str) -> None:
        """Takes note of something that gives a process cause to commit once more."""
        since_ms, left = self._left.get(process, (0, _MOST_LEFT))
        self._left[process] = since_ms, min(left + 1, _MOST_LEFT)

    @staticmethod
    def _leaves_for_good(request: Request) -> bool:
        return request.api == "LeaveGroup" or request.body.get("memberEpoch") == LEAVE_GROUP_EPOCH

    def _commit(self, process: str, request: Request, now_ms: int, config: MemberConfig) -> None:
        if not config.enable_auto_commit:
            self._tell(process, request, now_ms, "though enable.auto.commit is false")
            return
        interval_ms = max(1, config.auto_commit_interval_ms)
        since_ms, left = self._left.get(process, (0, _MOST_LEFT))
        left = min(left + (now_ms - since_ms) / interval_ms, _MOST_LEFT) - 1
        if left < 0:
            self._tell(process, request, now_ms, f"more often than each {interval_ms} ms (auto.commit.interval.ms)")
        self._left[process] = now_ms, max(left, 0)

    def _tell(self, process: str, request: Request, now_ms: int, how: str) -> None:
        """Takes note of what a process sends too often, once for each API."""
        if (process, request.api) not in self._told:
            self._told.add((process, request.api))
            group_id = request.body.get("groupId", "")
            self._history.sent_without_cause.append(SentWithoutCause(now_ms, group_id, process, request.api, how))


def _is_paced(config: MemberConfig, consumer_beats_ms: int) -> bool:
    """Tells whether a member is set up to send nothing more than ten times a second by itself."""
    beats_ms = config.heartbeat_interval_ms if config.group_protocol == "classic" else consumer_beats_ms
    return min(config.retry_backoff_ms, config.auto_commit_interval_ms, beats_ms) >= _LEAST_PAUSE_MS


def sent_without_cause(history: History) -> Iterator[Violation]:
    """Yields what members sent too often."""
    for sent in history.sent_without_cause:
        yield Violation(sent.ts_ms, sent.group_id, "sent without cause", f"{sent.process} sends {sent.api} {sent.how}")
