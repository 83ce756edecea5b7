"""Finds members that go on after an error that is to end them, fall silent for nothing, or keep time from going on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final

from coordinator_udf.groups.decisions import PLACES
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.members.exceptions import ERROR_CLASSES, Retry
from coordinator_udf.members.outputs import Request
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.measures import ENDS
from coordinator_udf.simulation.noted import FatalError, GoesOn
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.violation import Violation

_TRANSITION = PLACES["transitions"]
#: What a member says as one of its group, or to be one.
_AS_MEMBER = frozenset({"JoinGroup", "SyncGroup", "Heartbeat", "ConsumerGroupHeartbeat"})
#: What no member tries again: its application is told by an exception.
_FATAL = frozenset(
    {
        Errors.FENCED_INSTANCE_ID,
        Errors.UNRELEASED_INSTANCE_ID,
        Errors.GROUP_MAX_SIZE_REACHED,
        Errors.INCONSISTENT_GROUP_PROTOCOL,
        Errors.INVALID_SESSION_TIMEOUT,
    }
)
#: What members see to themselves: what may be tried again, and what makes them join once more.
_OWN = frozenset(
    {one.exception for one in ERROR_CLASSES.values() if one.retry is not Retry.NO}
    | {
        ERROR_CLASSES[code].exception
        for code in (
            Errors.UNKNOWN_MEMBER_ID,
            Errors.ILLEGAL_GENERATION,
            Errors.REBALANCE_IN_PROGRESS,
            Errors.FENCED_MEMBER_EPOCH,
            Errors.STALE_MEMBER_EPOCH,
        )
    }
)
#: What an application has done once it was told, or what makes another member of it.
_TOLD = frozenset({"error", "crash", "close", "closed", "start"})
#: A classic member's other thread may be about to say something.
_SLACK_MS: Final = 1_000
#: A heartbeat goes out only when the last one is answered, which is to take a small part of a session.
_PROMPT_MS: Final = 1_000


class FatalErrors:
    """The errors that members were told that are to end them, in a world that goes on."""

    def __init__(self, plan: WorldPlan, history: History) -> None:
        self._history = history
        #: A poll goes on after its callbacks, and throws only then.
        self._slack_ms = {member.name: _SLACK_MS + 3 * member.callback_ms for member in plan.members}
        #: When processes were told one, and which.
        self._told: dict[str, tuple[int, int]] = {}

    def hear(self, process: str, request: Request, body: Mapping[str, Any], ts_ms: int) -> None:
        """Takes note of an answer that comes to a process now, in milliseconds since the epoch."""
        if request.api in _AS_MEMBER and body["errorCode"] in _FATAL and process not in self._told:
            self._told[process] = ts_ms, body["errorCode"]
            error = Errors(body["errorCode"]).name
            self._history.fatal_errors.append(FatalError(ts_ms, request.body["groupId"], process, error))

    def send(self, process: str, request: Request, now_ms: int) -> None:
        """Looks whether a process that sends something was told such an error, and its application wasn't."""
        if process not in self._told or request.api not in _AS_MEMBER:
            return
        ts_ms, error = self._told[process]
        if self._history.was_told(process, _TOLD, ts_ms):
            del self._told[process]
        elif now_ms > ts_ms + self._slack_ms[process] and process not in self._history.misbehaving:
            del self._told[process]
            name = Errors(error).name
            self._history.going_on.append(GoesOn(now_ms, request.body["groupId"], process, request.api, name))


def always_heard(plan: WorldPlan) -> frozenset[str]:
    """Returns the processes that keep to the protocol, and whose requests all come in time.

    A classic member sends no heartbeats before its application takes the answer to its first JoinGroup.
    """
    waits_ms = plan.cadence_ms + plan.network.latency_ms[1]
    if plan.network.loss or waits_ms > _PROMPT_MS or not plan.is_always_served:
        return frozenset()
    heard = (member for member in plan.members if member.habit is None and member.is_always_heard)
    return frozenset(member.name for member in heard if member.is_kip_848 or _polls_in_time(member))


def _polls_in_time(member: MemberPlan) -> bool:
    pause_ms = member.poll_ms + member.process_ms + member.callback_ms
    return not member.stalls and 2 * pause_ms < member.config().session_timeout_ms


class _Processes:
    """When each process started and ended, and when its application was told something or did so.

    A world may have thousands of errors: what tells of one process is looked up, and not looked for among all.
    """

    def __init__(self, history: History) -> None:
        #: When a process started or ended, and whether it started.
        self._turns: defaultdict[str, list[tuple[int, bool]]] = defaultdict(list)
        self._told_ms: defaultdict[str, list[int]] = defaultdict(list)
        for event in history.events:
            if event.event in _TOLD:
                self._told_ms[event.process].append(event.ts_ms)
            if event.event in ENDS or event.event == "start":
                self._turns[event.process].append((event.ts_ms, event.event == "start"))

    def lives(self, process: str, ts_ms: int) -> bool:
        """Tells whether a process runs at a time: of its start and its ends the last one by then is a start."""
        turns = self._turns[process]
        place = bisect_right(turns, ts_ms, key=itemgetter(0))
        return place > 0 and turns[place - 1][1]

    def was_told(self, process: str, since_ms: int, until_ms: int) -> bool:
        """Tells whether its application was told something, or ended or started, in a time."""
        told_ms = self._told_ms[process]
        place = bisect_left(told_ms, since_ms)
        return place < len(told_ms) and told_ms[place] <= until_ms


def unheeded(history: History) -> Iterator[Violation]:
    """Yields who went on after a fatal error, who fell silent while it lived, and where time didn't go on."""
    processes = _Processes(history)
    for ts_ms, group_id, process, api, error in history.going_on:
        detail = f"{process} sends {api} after it was told {error}, of which its application wasn't told"
        yield Violation(ts_ms, group_id, "error not told", detail)
    yield from _untold(history, processes)
    yield from _wrong_errors(history)
    if history.standstill_ms is not None:
        yield Violation(history.standstill_ms, "", "standstill", "so much happens at once that the world is ended")
    yield from _silent(history, processes)


def _untold(history: History, processes: _Processes) -> Iterator[Violation]:
    """Yields applications that poll all the time, and aren't told of an error that ends their member."""
    for ts_ms, group_id, process, error in history.fatal_errors:
        until_ms = ts_ms + history.polls_within_ms.get(process, history.end_ms)
        if until_ms >= history.end_ms or not processes.lives(process, ts_ms):
            continue
        if not processes.was_told(process, ts_ms, until_ms):
            detail = f"{process} is told {error}, and its application isn't within {until_ms - ts_ms} ms"
            yield Violation(until_ms, group_id, "error not told", detail)


def polls_within_ms(plan: WorldPlan) -> dict[str, int]:
    """Returns within which time processes poll twice in any case, and are through with their callbacks.

    A classic member that subscribes to a pattern waits in its polls for metadata, which may not come where it is cut
    off.
    """
    return {
        member.name: _SLACK_MS + 3 * (member.poll_ms + member.process_ms + member.callback_ms)
        for member in plan.members
        if member.habit is None
        and not (member.stalls or member.hangs or (member.matches_pattern and not member.is_always_heard))
    }


def _wrong_errors(history: History) -> Iterator[Violation]:
    """Yields what applications are told by poll though their members are to see to it themselves."""
    for event in history.events:
        if event.event == "error" and event.detail is not None and event.process not in history.misbehaving:
            call, exception, *_ = event.detail.split(": ")
            if call == "poll" and exception in _OWN:
                detail = f"{event.process} is told {exception}, after which its member tries again"
                yield Violation(event.ts_ms, event.group_id, "wrong error", detail)


def _silent(history: History, processes: _Processes) -> Iterator[Violation]:
    """Yields whose session ended though its process was there, and its requests would have come in time."""
    for row in history.transitions() if history.always_heard else ():
        if row[_TRANSITION["rule"]] != GroupEvent.SESSION_EXPIRED or row[_TRANSITION["members"]] is not None:
            continue
        process = history.process_of.get(row[_TRANSITION["cause_member_id"]], "")
        if process not in history.always_heard or not processes.lives(process, row[_TRANSITION["ts"]]):
            continue
        known = history.membership_at(process, row[_TRANSITION["ts"]])
        # A static member of KIP-848 that has left for a while has what is left of its session.
        if known is not None and known.number > 0:
            detail = f"{process} sends no heartbeats, and its session ends"
            yield Violation(row[_TRANSITION["ts"]], row[_TRANSITION["group_id"]], "fell silent", detail)
