"""How fast the members of a log go on with a rebalance once they are answered, beyond what the network takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.simulation.plan import NetworkPlan
from coordinator_udf.simulation.what_if.processes import LoggedProcess, answered_ms, arrived_ms

#: One that takes longer than this to join again doesn't poll.
_IN_POLL_MS = 1_000


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a process took from one thing to the next, each time, in milliseconds.

    Attributes:
        following: from an answer to JoinGroup to its SyncGroup, where it only followed.
        assigning: the same, where it was the leader.
        first_following, first_assigning: the first of either, which those don't have: a process loads its code then.
        rejoining: from when a heartbeat told it to join again to its JoinGroup.
    """

    following: tuple[float, ...]
    assigning: tuple[float, ...]
    first_following: tuple[float, ...]
    first_assigning: tuple[float, ...]
    rejoining: tuple[float, ...]

    @property
    def turns(self) -> tuple[float, ...]:
        """From all answers to JoinGroup to SyncGroups."""
        return self.first_following + self.first_assigning + self.following + self.assigning


def pace_of(process: LoggedProcess) -> Pace:
    """Takes a process's pace from its requests."""
    times: dict[bool, list[float]] = {True: [], False: []}
    first: dict[bool, tuple[float, ...]] = {True: (), False: ()}
    joined_ms = None
    for entry in process.entries:
        if entry.api == "JoinGroup" and entry.response and not entry.response["errorCode"]:
            joined_ms = entry.written_us / 1000
        elif entry.api == "SyncGroup" and joined_ms is not None:
            assigns, took_ms = bool(entry.request["assignments"]), max(0.0, arrived_ms(entry) - joined_ms)
            # Who has assigned has sent a SyncGroup before, too.
            if first[assigns] or (first[True] and not assigns):
                times[assigns].append(took_ms)
            else:
                first[assigns] = (took_ms,)
            joined_ms = None
    return Pace(tuple(times[False]), tuple(times[True]), first[False], first[True], tuple(_rejoining(process)))


def _rejoining(process: LoggedProcess) -> Iterator[float]:
    told_ms: float | None = None
    for entry in process.of("Heartbeat", "JoinGroup"):
        if entry.api == "JoinGroup":
            if told_ms is not None and arrived_ms(entry) - told_ms <= _IN_POLL_MS:
                yield max(0.0, arrived_ms(entry) - told_ms)
            told_ms = None
        elif (entry.response or {}).get("errorCode") == Errors.REBALANCE_IN_PROGRESS:
            told_ms = answered_ms(entry)


def network_of(paces: Iterable[Pace]) -> NetworkPlan:
    """Returns the latency that explains how fast members went on at best after an answer: half of it each way."""
    turns = sorted(turn for pace in paces for turn in pace.turns)
    least_ms = max(1, round(quantiles(turns, n=10)[0] / 2)) if len(turns) > 3 else 1
    return NetworkPlan((least_ms, least_ms))


def delays(paces: Sequence[Pace], network: NetworkPlan) -> dict[str, Any]:
    """Returns, under the names of a world's plan, how much longer than the network explains members took to go on."""
    trip_ms = sum(network.latency_ms)
    following = _beyond((time for pace in paces for time in pace.following), trip_ms)
    assigning = _beyond((time for pace in paces for time in pace.assigning), trip_ms)
    first_following = _beyond((time for pace in paces for time in pace.first_following), trip_ms)
    first_assigning = _beyond((time for pace in paces for time in pace.first_assigning), trip_ms)
    return {
        "sync_delays_ms": following or first_following or (0,),
        "assign_delays_ms": assigning or first_assigning or (0,),
        "first_sync_delays_ms": first_following,
        "first_assign_delays_ms": first_assigning,
        # It commits before it joins again.
        "rejoin_delays_ms": _beyond((time for pace in paces for time in pace.rejoining), 2 * trip_ms),
    }


def _beyond(times_ms: Iterable[float], explained_ms: float) -> tuple[int, ...]:
    return tuple(max(0, round(time_ms - explained_ms)) for time_ms in sorted(times_ms))
