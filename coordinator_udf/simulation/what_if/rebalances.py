"""The rebalances that a group's requests tell of, of a broker's log as of a world: trigger, start, end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.history import AnsweredRequest, History
from coordinator_udf.simulation.process_names import client_and_run
from coordinator_udf.simulation.what_if.processes import LoggedProcess, answered_ms, handled_ms, member_id_of

MEMBER_ADDED, MEMBER_LEFT, MEMBER_UPDATED = "MEMBER_ADDED", "MEMBER_LEFT", "MEMBER_UPDATED"
SESSION_EXPIRED, TOPICS_CHANGED = "SESSION_EXPIRED", "TOPICS_CHANGED"
#: The times of a request log are not exact to the order of requests that come this close to each other.
_AT_ONCE_MS = 20
#: As late as this an epoch has its assignment (group.consumer.assignment.interval.ms); a member is told a heartbeat
#: interval later, here at least Kafka's default.
_ASSIGNED_WITHIN_MS = 1_000
_LEAST_INTERVAL_MS = 5_000
#: The epoch by which a static member leaves that comes back (LEAVE_GROUP_STATIC_MEMBER_EPOCH).
_LEFT_FOR_A_WHILE = -2


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A generation or epoch as it was formed. Times in milliseconds since the epoch.

    Attributes:
        trigger: what set it off, by the name that the `rebalances` view gives it.
        start_ms: when the turn of that had come, or when its first sign was seen, if nothing that came did it.
        end_ms: when the last member of it was answered.
    """

    number: int
    trigger: str
    start_ms: float
    end_ms: float

    @property
    def duration_ms(self) -> float:
        """From start to end."""
        return self.end_ms - self.start_ms


def recorded_rebalances(
    processes: Iterable[LoggedProcess], removals: Iterable[Entry] = (), changed_ms: Sequence[float] = ()
) -> list[Rebalance]:
    """Returns the generations that members were told of, and the epochs of groups of type consumer, in order.

    Args:
        removals: an administrator's requests that removed members.
        changed_ms: when topics came, grew or went, which sets off an epoch without any request of a member.
    """
    known = list(processes)
    entries = sorted([*(entry for process in known for entry in process.entries), *removals], key=handled_ms)
    older = {str(member_id_of(process.entries[0])) for process in known if process.is_older}
    return [*_generations(entries, older), *_epochs(entries, changed_ms)]


def _generations(entries: list[Entry], members: set[str]) -> Iterator[Rebalance]:
    """Yields the generations that were formed; ``members``: the ids of those that are older than the log."""
    formed: dict[int, list[Entry]] = {}
    synced: dict[int, list[Entry]] = {}
    for entry in entries:
        body = entry.response or {}
        if body.get("errorCode"):
            continue
        if entry.api == "JoinGroup" and body["generationId"] > 0:
            formed.setdefault(body["generationId"], []).append(entry)
        elif entry.api == "SyncGroup":
            synced.setdefault(entry.request["generationId"], []).append(entry)
    before_ms = 0.0
    for number, answered in sorted(formed.items()):
        joined_ms, end_ms = _phases(answered, synced.get(number, []))
        trigger, start_ms = _trigger(entries, number, members, (before_ms, joined_ms))
        yield Rebalance(number, trigger, start_ms, end_ms)
        members = {str((entry.response or {})["memberId"]) for entry in answered}
        before_ms = joined_ms


def _phases(joins: list[Entry], syncs: list[Entry]) -> tuple[float, float]:
    """Returns when all had joined that formed a generation, and when all of them had synced.

    A static member that comes back is told of the generation that there is, and syncs, long after that was formed.
    """
    assigned_ms = min((handled_ms(entry) for entry in syncs if entry.request.get("assignments")), default=None)
    first = [entry for entry in joins if assigned_ms is None or handled_ms(entry) <= assigned_ms] or joins
    joined_ms = max(map(answered_ms, first))
    ids = {(entry.response or {})["memberId"] for entry in first}
    ends_ms: dict[str, float] = {}
    for entry in syncs:
        if entry.request["memberId"] in ids:
            ends_ms.setdefault(entry.request["memberId"], answered_ms(entry))
    return joined_ms, max([joined_ms, *ends_ms.values()])


def _trigger(entries: list[Entry], number: int, members: set[str], span: tuple[float, float]) -> tuple[str, float]:
    """Returns what in a span of time set off the join phase that ended with it, and with a generation."""
    first: dict[str, float] = {}
    for entry in entries:
        if not span[0] < answered_ms(entry) <= span[1]:
            continue
        code = (entry.response or {}).get("errorCode")
        if entry.api == "LeaveGroup" and _has_left(entry) and handled_ms(entry) > span[0]:
            # One that came before ended the phase before: it was the last that that one waited for.
            first.setdefault(MEMBER_LEFT, handled_ms(entry))
        elif entry.api == "Heartbeat" and code == Errors.REBALANCE_IN_PROGRESS:
            # It is told of what has happened: of something that no request did, unless one came just then.
            first.setdefault(SESSION_EXPIRED, handled_ms(entry) + _AT_ONCE_MS)
        elif entry.api == "JoinGroup" and (entry.response or {}).get("generationId") == number:
            is_member = entry.request.get("memberId") in members
            first.setdefault(MEMBER_UPDATED if is_member else MEMBER_ADDED, handled_ms(entry))
    if not first:
        return MEMBER_UPDATED, span[1]
    if len(first) > 1 and first.get(MEMBER_UPDATED, 0) >= first.get(SESSION_EXPIRED, span[1]) - _AT_ONCE_MS:
        # It was told to.
        first.pop(MEMBER_UPDATED, None)
    trigger = min(first, key=lambda name: first[name])
    return trigger, first[trigger] - (_AT_ONCE_MS if trigger == SESSION_EXPIRED else 0)


def _has_left(entry: Entry) -> bool:
    """Returns whether a LeaveGroup took a member out: from version 3 on each that it names has an error of its own."""
    answer = entry.response or {"errorCode": -1}
    members = answer.get("members")
    return not answer["errorCode"] and (not members or any(not member["errorCode"] for member in members))


def _epochs(entries: list[Entry], changed_ms: Sequence[float]) -> Iterator[Rebalance]:
    """Yields the epochs that members reached, each from its first sign to the time when the last one reached it."""
    spans: dict[int, list[Entry]] = {}
    causes: list[tuple[float, str]] = []
    away: set[str | None] = set()
    subscribed: dict[str, tuple[str, ...]] = {}
    interval_ms = _LEAST_INTERVAL_MS
    for entry in entries:
        body = entry.response or {"errorCode": -1}
        if entry.api != "ConsumerGroupHeartbeat" or body["errorCode"]:
            continue
        interval_ms = max(interval_ms, body["heartbeatIntervalMs"])
        asked = entry.request.get("memberEpoch", 0)
        instance_id = entry.request.get("instanceId")
        # A static member that leaves for a while bumps no epoch, nor does it when it comes back.
        if asked == _LEFT_FOR_A_WHILE:
            away.add(instance_id)
        elif asked == 0 and instance_id in away:
            away.discard(instance_id)
        elif asked <= 0:
            causes.append((handled_ms(entry), MEMBER_ADDED if asked == 0 else MEMBER_LEFT))
        names = tuple(sorted(entry.request.get("subscribedTopicNames") or ()))
        if names and subscribed.setdefault(entry.request["memberId"], names) != names:
            subscribed[entry.request["memberId"]] = names
            causes.append((handled_ms(entry), MEMBER_UPDATED))
        if body["memberEpoch"] > 0 and asked != body["memberEpoch"]:
            spans.setdefault(body["memberEpoch"], []).append(entry)
    before_ms = 0.0
    for number, reached in sorted(spans.items()):
        first_ms = min(map(handled_ms, reached))
        # A target assignment may take its time: an epoch is first seen after what set it off.
        since_ms = first_ms - _ASSIGNED_WITHIN_MS - interval_ms
        causes = [cause for cause in causes if cause[0] >= since_ms]
        changes = [time_ms for time_ms in changed_ms if max(before_ms, since_ms) <= time_ms <= first_ms]
        trigger, start_ms = SESSION_EXPIRED, first_ms
        if causes and causes[0][0] <= first_ms:
            start_ms, trigger = causes.pop(0)
        elif changes:
            start_ms, trigger = min(changes), TOPICS_CHANGED
        before_ms = first_ms
        # Who joins once the epoch is there is given it at once, and is none of those that it waited for.
        ends = [entry for entry in reached if entry.request.get("memberEpoch", 0) or handled_ms(entry) == first_ms]
        yield Rebalance(number, trigger, start_ms, max(map(answered_ms, ends)))


def simulated_rebalances(history: History, group_id: str, changed_ms: Sequence[float] = ()) -> list[Rebalance]:
    """Returns the generations and epochs of a world that kept its members' requests, as `recorded_rebalances`.

    Those that began before the world's history does, when members join that are older than their log, are left out.
    """
    processes: dict[str, LoggedProcess] = {}
    for number, kept in enumerate(history.answered):
        if kept.group_id == group_id:
            client_id, run = client_and_run(kept.process)
            process = processes.setdefault(kept.process, LoggedProcess(group_id, client_id, run, kept.arrived_ms))
            process.entries.append(_entry(number, client_id, kept))
    found = recorded_rebalances(processes.values(), changed_ms=changed_ms)
    return [one for one in found if one.start_ms >= history.start_ms]


def _entry(number: int, client_id: str, kept: AnsweredRequest) -> Entry:
    waited_us = (kept.answered_ms - kept.arrived_ms) * 1000
    return Entry(
        number=number,
        api=kept.api,
        api_version=-1,
        request_id=str(number),
        connection=kept.process,
        client_id=client_id,
        client_host=None,
        request=dict(kept.request),
        response=dict(kept.response),
        written_us=kept.answered_ms * 1000,
        exact_us=1000,
        total_us=waited_us,
        queue_us=0,
        local_us=0,
        remote_us=waited_us,
    )
