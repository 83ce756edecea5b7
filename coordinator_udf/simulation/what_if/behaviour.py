"""What a member's process did, taken from its requests: when it started and ended, polled late, how it was set up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.plan import Hang, Refusal, Stall
from coordinator_udf.simulation.what_if.expiry import is_expiry
from coordinator_udf.simulation.what_if.hangs import SILENT_INTERVALS, hangs
from coordinator_udf.simulation.what_if.pace import Pace, pace_of
from coordinator_udf.simulation.what_if.processes import (
    LoggedProcess,
    answered_ms,
    arrived_ms,
    begins,
    handled_ms,
    leaves,
    member_id_of,
)
from coordinator_udf.simulation.what_if.properties import auto_commit_interval_ms, instance_id_of, properties_of
from coordinator_udf.simulation.what_if.restarts import Restarts
from coordinator_udf.simulation.what_if.strange_requests import strange_requests
from coordinator_udf.simulation.what_if.subscriptions import subscribed_topics, subscriptions_of

#: A heartbeat that takes the coordinator longer tells of it, not of the network.
_LATE_ANSWER_MS = 50
#: A commit that comes so shortly before its member leaves is part of closing.
_CLOSING_MS = 100
#: A member that joins again so shortly after its SyncGroup was answered does it for what that told.
_SOON_MS = 1_000
#: One that was removed would have heard of it within one.
_SILENT_REMOVED_INTERVALS = 1.5


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A process. Times in milliseconds since the epoch.

    Attributes:
        properties: Kafka's consumer properties, as far as the requests tell them.
        regex: the pattern that it subscribed to first, for the coordinator to match, if it wanted no topics by name.
        resubscribed_ms: the topics that it wanted from a time on.
        joined_ms: when its first request to join was handled.
        hangs: when it sent nothing at all, and went on where it had been.
        refusals: when no broker let it connect, until it first came again.
        pace: how fast it went on with rebalances.
        lateness_ms: how much later than it was due each heartbeat came.
        beats_ms: when each heartbeat came.
        acks_ms: those of them that said what the member owns.
        looks_ms: when requests came that only the application's poll sets off, of a member of KIP-848.
        sent_ms: requests (API) that answer to something: when that was answered, and when they were handled.
        answered_late_ms: requests (API) that are answered at once, if it took long: when they came, and how long.
        learned_ms: when it joined again though nobody had told it to, and it wanted the same topics: those had changed.
        rejoined_ms: those of these times when it had nothing to give up, each after when the first of its peers joined.
        member_ids: its ids, one after the other.
        unknown: what the requests don't tell, in words.
    """

    process: LoggedProcess
    properties: dict[str, Any]
    topics: tuple[str, ...]
    regex: str | None
    resubscribed_ms: tuple[tuple[float, tuple[str, ...]], ...]
    start_ms: float
    joined_ms: float
    close_ms: float | None
    crash_ms: float | None
    stalls: tuple[Stall, ...]
    hangs: tuple[Hang, ...]
    refusals: tuple[Refusal, ...]
    pace: Pace
    lateness_ms: tuple[float, ...]
    beats_ms: tuple[float, ...]
    acks_ms: tuple[float, ...]
    looks_ms: tuple[float, ...]
    sent_ms: tuple[tuple[str, float, float], ...]
    answered_late_ms: tuple[tuple[str, float, float], ...]
    learned_ms: tuple[float, ...]
    rejoined_ms: tuple[tuple[float, float], ...]
    member_ids: tuple[str, ...]
    unknown: tuple[str, ...]


def behaviour_of(
    process: LoggedProcess, peers: Sequence[LoggedProcess], of_log_ms: Sequence[float], restarts: Restarts
) -> Behaviour:
    """Takes a process's behaviour from its requests.

    Args:
        peers: the processes of its group, that one among them.
        of_log_ms: when requests of anybody arrived, and last when the log ended, in order.
    """
    unknown: list[str] = []
    commit_ms = auto_commit_interval_ms(process, peers)
    properties = properties_of(process, peers, commit_ms, unknown)
    interval_ms = int(properties["heartbeat.interval.ms"])
    subscriptions, regex = subscriptions_of(process, peers)
    close_ms, crash_ms = _end(process, interval_ms, commit_ms, of_log_ms[-1], unknown)
    hung = () if instance_id_of(process) is not None else tuple(hangs(process, interval_ms, of_log_ms, restarts))
    unknown += strange_requests(process)
    learned = list(_learned(process))
    unknown += [f"why {process.name} ({process.run}) sends nothing for {one.length_ms} ms" for one in hung]
    return Behaviour(
        process=process,
        properties=properties,
        topics=subscriptions[0][1] if subscriptions else (),
        regex=regex,
        resubscribed_ms=tuple(subscriptions[1:]),
        start_ms=process.found_ms,
        joined_ms=handled_ms(process.entries[0]),
        close_ms=close_ms,
        crash_ms=crash_ms,
        stalls=tuple(_stalls(process, properties, restarts)),
        hangs=hung,
        refusals=tuple(restarts.refusals(process)),
        pace=pace_of(process),
        lateness_ms=tuple(_lateness(process, interval_ms)),
        beats_ms=tuple(_beats(process)),
        acks_ms=tuple(_acks(process)),
        looks_ms=tuple(_looks(process)),
        sent_ms=tuple(_sent(process)),
        answered_late_ms=tuple(_answered_late(process, peers)),
        learned_ms=tuple(map(arrived_ms, learned)),
        rejoined_ms=tuple(_rejoined(process, peers, learned)),
        member_ids=tuple(_member_ids(process)),
        unknown=tuple(unknown),
    )


def _end(
    process: LoggedProcess, interval_ms: int, commit_ms: int | None, log_end_ms: float, unknown: list[str]
) -> tuple[float | None, float | None]:
    """Returns when the process closed its consumer, or was killed."""
    if process.replaced_ms is not None:
        unknown.append(f"why {process.name} ({process.run}) joins as another: as if killed, and started anew")
        return None, process.replaced_ms - 1
    place = _last_leave(process)
    last = process.entries[place if place is not None else -1]
    # Most clients don't say why they leave, but they come back.
    if place is not None and not is_expiry(last.request):
        return _closed_ms(process, place), None
    answered = answered_ms(last)
    removed_ms = [time for time in process.removed_ms if time >= answered]
    silent_ms = (_SILENT_REMOVED_INTERVALS if removed_ms else SILENT_INTERVALS) * interval_ms
    if log_end_ms - answered <= silent_ms:
        return None, None
    # It would have sent something by then.
    beats, commits = process.of("Heartbeat", "ConsumerGroupHeartbeat", "JoinGroup"), process.of("OffsetCommit")
    due = [answered_ms(beats[-1]) + interval_ms] if beats else [answered + interval_ms]
    # What is removed and silent from then on was at its end before.
    due += removed_ms
    if commits and commit_ms is not None:
        due.append(arrived_ms(commits[-1]) + commit_ms)
    ended_ms = (answered + max(min(due), answered)) / 2
    what = "was killed or closed" if instance_id_of(process) is not None else "was killed"
    within_ms = max(min(due) - answered, 0)
    unknown.append(f"{process.name} ({process.run}) {what} within {within_ms:.0f} ms of its last request")
    return None, ended_ms


def _closed_ms(process: LoggedProcess, place: int) -> float:
    """Returns when a process began to close that left with the request at a place: a commit may go before it."""
    left_ms, before = arrived_ms(process.entries[place]), process.entries[max(0, place - 1)]
    is_one = before.api == "OffsetCommit" and left_ms - arrived_ms(before) <= _CLOSING_MS
    return arrived_ms(before) if is_one else left_ms


def _last_leave(process: LoggedProcess) -> int | None:
    """Returns the place of the request with which a process left for good; None if it didn't."""
    for place in range(len(process.entries) - 1, -1, -1):
        if leaves(process.entries[place]):
            return place
        if begins(process.entries[place]):
            return None
    return None


def was_let_in(process: LoggedProcess) -> bool:
    """Returns whether a process became a member, or its request to join has no answer in the log."""
    return process.is_older or any(
        entry.response is None or entry.response.get("errorCode") in {Errors.NONE, Errors.MEMBER_ID_REQUIRED}
        for entry in process.entries
        if begins(entry)
    )


def _stalls(process: LoggedProcess, properties: dict[str, Any], restarts: Restarts) -> list[Stall]:
    """Returns the times in which the application didn't poll, from their start, in milliseconds since the epoch."""
    max_poll_ms = int(properties["max.poll.interval.ms"])
    stalls = []
    for place, entry in enumerate(process.entries):
        back = [later for later in process.entries[place + 1 :] if begins(later)] if leaves(entry) else []
        if leaves(entry) and (back or is_expiry(entry.request)):
            began_ms = arrived_ms(entry) - max_poll_ms
            ended_ms = arrived_ms(back[0]) if back else began_ms + 10 * max_poll_ms
            stalls.append(Stall(round(began_ms), round(ended_ms - began_ms)))
    if not stalls and instance_id_of(process) is not None:
        stalls = _silences(process, properties, max_poll_ms, restarts)
    return [*stalls, *_unheeded(process)]


def _unheeded(process: LoggedProcess) -> Iterator[Stall]:
    """Yields the time before a close in which a member had been told to join again and its application didn't poll."""
    place = _last_leave(process)
    told_ms: float | None = None
    for entry in process.entries[: place or 0]:
        if entry.api == "Heartbeat" and (entry.response or {}).get("errorCode") == Errors.REBALANCE_IN_PROGRESS:
            told_ms = answered_ms(entry) if told_ms is None else told_ms
        elif entry.api in {"JoinGroup", "SyncGroup"}:
            told_ms = None
    if place is not None and told_ms is not None and not is_expiry(process.entries[place].request):
        began_ms = round(told_ms) - 1
        yield Stall(began_ms, max(1, round(arrived_ms(process.entries[place])) - began_ms))


def _silences(process: LoggedProcess, properties: dict[str, Any], max_poll_ms: int, restarts: Restarts) -> list[Stall]:
    """Returns stalls of a static member, which doesn't leave: its heartbeats end with its poll interval."""
    longest_ms = SILENT_INTERVALS * int(properties["heartbeat.interval.ms"])
    stalls = []
    for before, after in pairwise(process.entries):
        silent_ms = arrived_ms(after) - answered_ms(before)
        if restarts.between(answered_ms(before), arrived_ms(after)):
            continue
        if silent_ms > longest_ms and after.api in {"JoinGroup", "Heartbeat", "ConsumerGroupHeartbeat"}:
            began_ms = arrived_ms(before) - max_poll_ms
            stalls.append(Stall(round(began_ms), round(arrived_ms(after) - began_ms)))
    return stalls


def _lateness(process: LoggedProcess, interval_ms: int) -> list[float]:
    """Returns how late heartbeats were that came one interval after another one, with no rebalance between them."""
    apis = {"Heartbeat", "ConsumerGroupHeartbeat", "JoinGroup", "SyncGroup", "LeaveGroup"}
    gaps = [
        arrived_ms(later) - arrived_ms(earlier)
        for earlier, later in pairwise(entry for entry in process.entries if entry.api in apis)
        if earlier.api == later.api and later.api.endswith("Heartbeat")
    ]
    return [max(0.0, gap - interval_ms) for gap in gaps if 0.9 * interval_ms <= gap <= 1.5 * interval_ms]


def _beats(process: LoggedProcess) -> Iterator[float]:
    """Yields when heartbeats came that neither join nor leave."""
    for entry in process.of("Heartbeat", "ConsumerGroupHeartbeat"):
        if entry.request.get("memberEpoch", 1) > 0:
            yield arrived_ms(entry)


def _acks(process: LoggedProcess) -> Iterator[float]:
    """Yields when heartbeats came that said what a member of KIP-848 owns."""
    for entry in process.of("ConsumerGroupHeartbeat"):
        if entry.request.get("topicPartitions") is not None and entry.request.get("memberEpoch", 0) > 0:
            yield arrived_ms(entry)


def _sent(process: LoggedProcess) -> Iterator[tuple[str, float, float]]:
    """Yields each JoinGroup with when the heartbeat was answered that asked for it, and each SyncGroup likewise.

    A first JoinGroup answers to nothing, a second one to the first. One that comes soon after a SyncGroup though nobody
    asked for it is that of a member that gives something up. A LeaveGroup answers to the call that closes.
    """
    place = _last_leave(process)
    if place is not None and (last := process.entries[place]).api == "LeaveGroup" and not is_expiry(last.request):
        yield "LeaveGroup", _closed_ms(process, place), handled_ms(last)
    told_ms: float | None = None
    joined_ms: float | None = None
    synced_ms: float | None = None
    was_given_id = False
    for entry in process.entries:
        code = (entry.response or {}).get("errorCode")
        if entry.api == "Heartbeat" and code == Errors.REBALANCE_IN_PROGRESS:
            told_ms = answered_ms(entry)
        elif entry.api == "JoinGroup":
            if told_ms is None and synced_ms is not None and arrived_ms(entry) - synced_ms <= _SOON_MS:
                told_ms = synced_ms
            if was_given_id and told_ms is not None and arrived_ms(entry) - told_ms > _SOON_MS:
                # The one that came at once isn't in the log: a broker that stops leaves requests without an answer.
                told_ms = None
            yield "JoinGroup", arrived_ms(entry) if told_ms is None else told_ms, handled_ms(entry)
            synced_ms, joined_ms = None, None if code else answered_ms(entry)
            was_given_id = code == Errors.MEMBER_ID_REQUIRED
            told_ms = answered_ms(entry) if was_given_id else None
        elif entry.api == "SyncGroup" and joined_ms is not None:
            # One that came in the same millisecond as the JoinGroup for which it was refused came after it.
            yield "SyncGroup", joined_ms, handled_ms(entry) + (code == Errors.REBALANCE_IN_PROGRESS)
            joined_ms, synced_ms = None, answered_ms(entry)


def _answered_late(process: LoggedProcess, peers: Sequence[LoggedProcess]) -> Iterator[tuple[str, float, float]]:
    """Yields what is answered at once and took long: a group's first heartbeat, or all on a busy machine.

    A SyncGroup is answered as soon as its generation's leader has sent its own, and that is written.
    """
    assigned_ms = {
        entry.request["generationId"]: handled_ms(entry)
        for peer in peers
        for entry in peer.of("SyncGroup")
        if entry.request["assignments"]
    }
    for entry in process.of("Heartbeat", "ConsumerGroupHeartbeat", "JoinGroup", "SyncGroup"):
        code, since_ms = (entry.response or {}).get("errorCode"), arrived_ms(entry)
        if entry.api == "JoinGroup" and code != Errors.MEMBER_ID_REQUIRED:
            continue
        if entry.api == "SyncGroup":
            if code or entry.request["generationId"] not in assigned_ms:
                continue
            since_ms = max(handled_ms(entry), assigned_ms[entry.request["generationId"]])
        took_ms = answered_ms(entry) - since_ms
        if took_ms > _LATE_ANSWER_MS:
            yield entry.api, arrived_ms(entry), took_ms


def _looks(process: LoggedProcess) -> Iterator[float]:
    """Yields when commits came, and the heartbeats that say what a member of KIP-848 owns: after a poll."""
    for entry in process.entries:
        tells = entry.request.get("topicPartitions") is not None and entry.request.get("memberEpoch", 0) > 0
        if entry.api == "OffsetCommit" or tells:
            yield arrived_ms(entry)


def _learned(process: LoggedProcess) -> Iterator[Entry]:
    """Yields the JoinGroups of a classic member that joined again of its own accord: its metadata had changed."""
    was_told = True
    topics: tuple[str, ...] | None = None
    for entry in process.entries:
        code = (entry.response or {}).get("errorCode")
        if entry.api == "JoinGroup":
            if not was_told and entry.request.get("memberId") and topics == subscribed_topics(entry) and not code:
                yield entry
            topics, was_told = subscribed_topics(entry), True
        elif entry.api == "SyncGroup" and not code:
            was_told = False
        elif entry.api in {"Heartbeat", "OffsetCommit", "LeaveGroup"}:
            was_told = was_told or bool(code)


def _rejoined(
    process: LoggedProcess, peers: Sequence[LoggedProcess], learned: Sequence[Entry]
) -> Iterator[tuple[float, float]]:
    """Yields when such a member joined for another generation, and before it when the first of all did.

    Not where it may have had to: a cooperative assignor had just told it to give something up.
    """
    first_ms: dict[int, float] = {}
    for entry in sorted((entry for peer in peers for entry in peer.of("JoinGroup")) if learned else (), key=arrived_ms):
        first_ms.setdefault(_generation(entry), arrived_ms(entry))
    for entry in learned:
        before = process.entries[: process.entries.index(entry)]
        last_join = [one for one in before if one.api == "JoinGroup"][-1]
        synced_ms = answered_ms([one for one in before if one.api == "SyncGroup"][-1])
        is_cooperative = "cooperative" in ((last_join.response or {}).get("protocolName") or "")
        if is_cooperative and arrived_ms(entry) - synced_ms <= _SOON_MS:
            continue
        if _generation(entry) != _generation(last_join):
            yield first_ms[_generation(entry)], arrived_ms(entry)


def _generation(entry: Entry) -> int:
    return int((entry.response or {}).get("generationId", -1))


def _member_ids(process: LoggedProcess) -> Iterator[str]:
    """Yields the ids that the member had, or was given as it joined without one."""
    if process.is_older:
        yield member_id_of(process.entries[0]) or ""
    beats = process.of("ConsumerGroupHeartbeat")
    if beats:
        yield from () if process.is_older else (beats[0].request.get("memberId") or "",)
        return
    for entry in process.of("JoinGroup"):
        given = (entry.response or {}).get("memberId")
        if given and not entry.request.get("memberId"):
            yield given
