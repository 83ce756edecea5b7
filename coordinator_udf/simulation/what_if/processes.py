"""Finds the processes of a group's members in a broker's request log: who sent which requests, in which order.

A process is told by its connections: a member that joins without a member id on a connection that its client id has not
used before is a new process; so is one with a new member id of its own (KIP-848). A known member id on a new connection
is the same process, connected anew. One that the coordinator takes for a member, though the log doesn't have how it
became one, is older than the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry

#: What members send about their group.
MEMBERS_APIS = frozenset(
    {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "ConsumerGroupHeartbeat"}
)

#: What tells a member that it isn't one any more, and has it join without its id.
GONE = frozenset({Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION, Errors.FENCED_INSTANCE_ID})


@dataclass(slots=True)
class LoggedProcess:
    """One process of a member.

    Attributes:
        entries: its requests about its group, in the order of their arrival.
        replaced_ms: when its client joined as somebody else, though nobody had told it that its member was gone.
        removed_ms: when an administrator removed its member, in milliseconds since the epoch.
        found_ms: when it first asked for its coordinator, in milliseconds since the epoch; its first request else.
        is_older: whether it was a member before the log begins.
        name: its client id, or a name of its own where others have that at the same time.
    """

    group_id: str
    client_id: str
    run: int
    found_ms: float
    replaced_ms: float | None = None
    connections: set[str] = field(default_factory=set)
    member_ids: set[str] = field(default_factory=set)
    entries: list[Entry] = field(default_factory=list)
    removed_ms: list[float] = field(default_factory=list)
    is_older: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or self.client_id

    def of(self, *apis: str) -> list[Entry]:
        """Returns its requests of some APIs."""
        return [entry for entry in self.entries if entry.api in apis]


def arrived_ms(entry: Entry) -> float:
    """Returns when a request arrived, in milliseconds since the epoch."""
    return entry.arrived_us / 1000


def handled_ms(entry: Entry) -> float:
    """Returns when a request had arrived and its turn came, in milliseconds since the epoch.

    While it waits for a thread of a busy broker, what comes after it may overtake it.
    """
    return (entry.arrived_us + (entry.queue_us or 0)) / 1000


def answered_ms(entry: Entry) -> float:
    """Returns when a request was answered, in milliseconds since the epoch."""
    return entry.answered_us / 1000


def find_processes(entries: Iterable[Entry]) -> dict[str, list[LoggedProcess]]:
    """Returns each group's processes in the order in which they began."""
    groups: dict[str, list[LoggedProcess]] = defaultdict(list)
    ordered = sorted(entries, key=lambda entry: entry.arrived_us)
    first = next((entry for entry in ordered if entry.api in MEMBERS_APIS), None)
    asked: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for entry in ordered:
        client_id = entry.client_id or ""
        if entry.api == "FindCoordinator":
            asked[client_id].append((arrived_ms(entry), entry.connection))
        if entry.api not in MEMBERS_APIS or entry.response is None:
            continue
        group_id = entry.request.get("groupId") or ""
        process = _process_of(groups[group_id], entry, client_id)
        if process is not None and _starts_over(process, entry):
            process.replaced_ms = arrived_ms(entry)
            process = None
        if process is None:
            is_older = _is_of_older(entry, first or entry) and not _is_of_other(groups[group_id], entry)
            if not (begins(entry) or is_older):
                continue
            process = _new_process(groups[group_id], entry, asked[client_id])
            process.is_older = is_older
            groups[group_id].append(process)
        process.connections.add(entry.connection)
        process.entries.append(entry)
        for member_id in (member_id_of(entry), (entry.response or {}).get("memberId")):
            if member_id:
                process.member_ids.add(member_id)
    return {group_id: processes for group_id, processes in groups.items() if processes}


def find_removals(leaves: Iterable[Entry], processes: list[LoggedProcess]) -> list[Entry]:
    """Returns those of a group's LeaveGroups that came from others than its members. Tells the processes so."""
    own = {entry.number for process in processes for entry in process.entries}
    found = []
    for entry in leaves:
        if entry.number in own:
            continue
        named = zip(entry.request.get("members") or (), (entry.response or {}).get("members") or (), strict=False)
        removed = [_removed(processes, member, arrived_ms(entry)) for member, told in named if not told["errorCode"]]
        if any(removed):
            found.append(entry)
        for process in removed:
            if process is not None:
                process.removed_ms.append(arrived_ms(entry))
    return found


def _removed(processes: list[LoggedProcess], member: Mapping[str, Any], at_ms: float) -> LoggedProcess | None:
    """Returns the process that last was the member that a LeaveGroup names, by its id or as a static one."""
    instance_id = member.get("groupInstanceId")
    for process in reversed([one for one in processes if arrived_ms(one.entries[0]) <= at_ms]):
        first = process.entries[0].request
        if instance_id and instance_id in {first.get("groupInstanceId"), first.get("instanceId")}:
            return process
        if not instance_id and member.get("memberId") in process.member_ids:
            return process
    return None


def member_id_of(entry: Entry) -> str | None:
    """Returns the id of the member that sent a request, or (LeaveGroup) of the first that it names."""
    if entry.api == "LeaveGroup" and "members" in entry.request:
        return entry.request["members"][0].get("memberId") if entry.request["members"] else None
    return entry.request.get("memberId")


def _is_of_older(entry: Entry, first: Entry) -> bool:
    """Returns whether a request of somebody unknown was answered as a member's, who then joined before the log begins.

    A LeaveGroup may be an administrator's: a member's own comes from the client for which its id was made. Who joins
    with an id that the log doesn't give out was heard within a session before; later, that is a line which is missing.
    """
    member_id, told = member_id_of(entry), error_codes(entry.response or {"errorCode": -1})
    if not member_id or entry.request.get("memberEpoch") == 0:
        return False
    if entry.api == "LeaveGroup":
        return not told - {0, None} and member_id.startswith(f"{entry.client_id}-")
    if entry.api == "JoinGroup" and arrived_ms(entry) - arrived_ms(first) > entry.request["sessionTimeoutMs"]:
        return False
    if entry.api in {"Heartbeat", "SyncGroup"}:
        return not told - {Errors.NONE, Errors.REBALANCE_IN_PROGRESS}
    return Errors.NONE in told


def _is_of_other(processes: Iterable[LoggedProcess], entry: Entry) -> bool:
    """Returns whether a request names a member that another client's process is."""
    return any(member_id_of(entry) in process.member_ids for process in processes)


def _process_of(processes: list[LoggedProcess], entry: Entry, client_id: str) -> LoggedProcess | None:
    member_id = member_id_of(entry)
    for process in reversed(processes):
        if process.client_id == client_id and entry.connection in process.connections:
            return process
    for process in reversed(processes):
        if member_id and member_id in process.member_ids and process.client_id == client_id:
            return process
    return None


def _starts_over(process: LoggedProcess, entry: Entry) -> bool:
    """Returns whether a request joins without the id that the process has: by its own clock its session is over."""
    if entry.api != "JoinGroup" or entry.request.get("memberId") or entry.request.get("groupInstanceId"):
        return False
    if (entry.response or {}).get("memberId") in process.member_ids:
        # It is the request for that very id: the times of a log are not exact to the order of the two.
        return False
    for before in reversed(process.entries):
        if before.api == "LeaveGroup" or _tells_it_is_gone(before.response or {}):
            return False
        if before.api == "JoinGroup":
            return not (before.response or {}).get("errorCode")
    return False


def _tells_it_is_gone(answer: Mapping[str, Any]) -> bool:
    return not error_codes(answer).isdisjoint(GONE)


def error_codes(answer: Mapping[str, Any]) -> set[int | None]:
    """Returns the errors that an answer tells, of the whole or, of a commit, of each partition."""
    codes = {answer.get("errorCode")}
    return codes | {place["errorCode"] for topic in answer.get("topics") or () for place in topic["partitions"]}


def leaves(entry: Entry) -> bool:
    """Tells whether a request is one with which a member leaves its group."""
    return entry.api == "LeaveGroup" or entry.request.get("memberEpoch", 0) < 0


def begins(entry: Entry) -> bool:
    """Returns whether a request can be a process's first: one that joins."""
    if entry.api == "JoinGroup":
        return True
    return entry.api == "ConsumerGroupHeartbeat" and entry.request.get("memberEpoch") == 0


def _new_process(processes: list[LoggedProcess], entry: Entry, asked: list[tuple[float, str]]) -> LoggedProcess:
    client_id = entry.client_id or ""
    earlier = [process for process in processes if process.client_id == client_id]
    since_ms = max((arrived_ms(process.entries[-1]) for process in earlier if process.entries), default=0.0)
    found = [time for time, connection in asked if since_ms < time <= arrived_ms(entry)]
    found_ms = found[0] if found and arrived_ms(entry) - found[0] < 10_000 else arrived_ms(entry)
    group_id = entry.request.get("groupId") or ""
    return LoggedProcess(group_id, client_id, 1 + len(earlier), found_ms)
