"""Finds members that send what Kafka's don't: without a pause, commits without a cause, or that a static one leaves."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.consumer.group_state import LEAVE_GROUP_EPOCH
from coordinator_udf.members.outputs import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.simulation.coordinator import Answered, commit_errors
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.noted import SentWithoutCause
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.violation import Violation

#: So many requests of one API a member may have cause to send in a second: Kafka's own send 22 at most, for each is
#: tried again after retry.backoff.ms (100), and both threads of a classic member may look for the coordinator.
_MOST_A_SECOND: Final = 40
_SECOND_MS: Final = 1_000
_LEAST_PAUSE_MS: Final = 100
#: How often a member may have cause to send a request before it does.
_MOST_LEFT: Final = 5
#: Members look for a coordinator that they have lost; who doesn't see how they lost it grants one look in so long.
_LOOKS_MS: Final = 10_000
_WHY: Final = {
    "OffsetCommit": "auto.commit.interval.ms",
    "Heartbeat": "heartbeat.interval.ms",
    "ConsumerGroupHeartbeat": "group.consumer.heartbeat.interval.ms",
    "FindCoordinator": "a coordinator that it has found is its own until it loses it",
}


class SentRequests:
    """Counts what the members that keep to the protocol send.

    Of commits, heartbeats and looks for the coordinator there is one more for each interval, and for what else gives a
    member cause to send one: a commit goes before a JoinGroup and before an assignment is taken over, a heartbeat after
    that, each is tried again after an error, and where a connection is lost all begins anew. Who doesn't commit
    automatically has no cause to commit: applications don't do it by themselves.
    """

    def __init__(self, plan: WorldPlan, history: History) -> None:
        self._configs = {member.name: member.config() for member in plan.members if member.habit is None}
        self._consumer_beats_ms = Settings.from_kafka(plan.settings).group_consumer_heartbeat_interval_ms
        self._every_ms = {name: self._intervals_ms(config) for name, config in self._configs.items()}
        self._paced = {name for name, config in self._configs.items() if self._is_paced(config)}
        self._history = history
        self._sent_ms: defaultdict[tuple[str, str], deque[int]] = defaultdict(lambda: deque(maxlen=_MOST_A_SECOND))
        #: When each process last sent a request, and how many more it had cause to send by then.
        self._left: dict[tuple[str, str], tuple[int, float]] = {}
        #: The processes that know their coordinators.
        self._with_coordinator: set[str] = set()
        self._told: set[tuple[str, str]] = set()

    def send(self, process: str, request: Request, now_ms: int) -> None:
        """Takes note of a request of a process."""
        config, api = self._configs.get(process), request.api
        if config is None:
            return
        is_settled = api != "ConsumerGroupHeartbeat" or self._history.is_stable(process)
        if not is_settled:
            # One that doesn't know the name of a topic that it is assigned sends heartbeats without a pause.
            self._sent_ms.pop((process, api), None)
        elif process in self._paced:
            self._look_at_pace(process, request, now_ms)
        if api == "JoinGroup":
            self._gives_cause(process, "OffsetCommit", "Heartbeat")
        elif api == "OffsetCommit":
            self._look_at_commit(process, request, now_ms, config)
        elif _leaves_for_good(request) and config.group_instance_id is not None:
            self._tell(process, request, now_ms, "to leave, though it is static (KIP-345)")
        is_lost = api == "FindCoordinator" and process not in self._with_coordinator
        if api in _WHY and is_settled and not is_lost:
            self._look_at_cause(process, request, now_ms, self._every_ms[process][api])

    def hear(self, answer: Answered) -> None:
        """Takes note of an answer that the coordinator has for a member."""
        api, body, process = answer.request.api, answer.body, answer.connection.member
        if _is_refused(api, body):
            self._with_coordinator.discard(process)
            self._gives_cause(process, api, "FindCoordinator")
        elif api == "FindCoordinator":
            self._gives_cause(process, "Heartbeat", "ConsumerGroupHeartbeat")
        elif api == "ConsumerGroupHeartbeat" and body["assignment"] is not None:
            self._gives_cause(process, "OffsetCommit", api)

    def told(self, process: str, request: Request, body: Mapping[str, Any]) -> None:
        """Takes note of an answer that comes to a process."""
        if request.api == "FindCoordinator" and not _is_refused(request.api, body):
            self._with_coordinator.add(process)

    def lose_connection(self, process: str) -> None:
        """Takes note that a process has lost a connection, or given it up."""
        self._with_coordinator.discard(process)
        self._gives_cause(process, *_WHY)

    def _gives_cause(self, process: str, *apis: str) -> None:
        for api in apis:
            since_ms, left = self._left.get((process, api), (0, _MOST_LEFT))
            self._left[process, api] = since_ms, min(left + 1, _MOST_LEFT)

    def _look_at_pace(self, process: str, request: Request, now_ms: int) -> None:
        sent_ms = self._sent_ms[process, request.api]
        is_much = len(sent_ms) == _MOST_A_SECOND and now_ms - sent_ms[0] < _SECOND_MS
        if is_much and not self._history.was_told(process, {"error"}, now_ms - _SECOND_MS):
            # An application that is told errors may poll again at once.
            self._tell(process, request, now_ms, f"more than {_MOST_A_SECOND} times in a second")
        sent_ms.append(now_ms)

    def _look_at_commit(self, process: str, request: Request, now_ms: int, config: MemberConfig) -> None:
        if not config.enable_auto_commit:
            self._tell(process, request, now_ms, "though enable.auto.commit is false")
        elif not request.body["topics"]:
            self._tell(process, request, now_ms, "with nothing in it")

    def _look_at_cause(self, process: str, request: Request, now_ms: int, interval_ms: int) -> None:
        since_ms, left = self._left.get((process, request.api), (0, _MOST_LEFT))
        left = min(left + (now_ms - since_ms) / interval_ms, _MOST_LEFT) - 1
        if left < 0:
            how = f"more often than each {interval_ms} ms ({_WHY[request.api]})"
            self._tell(process, request, now_ms, how)
        self._left[process, request.api] = now_ms, max(left, 0)

    def _intervals_ms(self, config: MemberConfig) -> dict[str, int]:
        """Returns how often a member has cause to send what it sends again and again."""
        intervals_ms = {
            "OffsetCommit": config.auto_commit_interval_ms,
            "Heartbeat": config.heartbeat_interval_ms,
            "ConsumerGroupHeartbeat": self._consumer_beats_ms,
            "FindCoordinator": _LOOKS_MS,
        }
        return {api: max(1, interval_ms) for api, interval_ms in intervals_ms.items()}

    def _is_paced(self, config: MemberConfig) -> bool:
        """Tells whether a member is set up to send nothing more than ten times a second by itself."""
        is_classic = config.group_protocol == "classic"
        beats_ms = config.heartbeat_interval_ms if is_classic else self._consumer_beats_ms
        return min(config.retry_backoff_ms, config.auto_commit_interval_ms, beats_ms) >= _LEAST_PAUSE_MS

    def _tell(self, process: str, request: Request, now_ms: int, how: str) -> None:
        """Takes note of what a process sends too often, once for each API."""
        if (process, request.api) not in self._told:
            self._told.add((process, request.api))
            group_id = request.body.get("groupId", "")
            self._history.sent_without_cause.append(SentWithoutCause(now_ms, group_id, process, request.api, how))


def _leaves_for_good(request: Request) -> bool:
    return request.api == "LeaveGroup" or request.body.get("memberEpoch") == LEAVE_GROUP_EPOCH


def _is_refused(api: str, body: Mapping[str, Any]) -> bool:
    """Tells whether an answer has an error code, be it for one partition."""
    match api:
        case "OffsetCommit":
            return any(commit_errors(body))
        case "FindCoordinator":
            return any(one["errorCode"] for one in body["coordinators"])
        case _:
            return bool(body.get("errorCode"))


def sent_without_cause(history: History) -> Iterator[Violation]:
    """Yields what members sent without a cause."""
    for sent in history.sent_without_cause:
        yield Violation(sent.ts_ms, sent.group_id, "sent without cause", f"{sent.process} sends {sent.api} {sent.how}")
