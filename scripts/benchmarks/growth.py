"""What a topic's growth costs a group, by how its members are assigned anew: worlds in virtual time.

The clients, the coordinator and what goes between them are the project's own and work as always; only time is virtual,
so that the figures are of the protocols and not of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from coordinator_udf.groups.decisions import COLUMNS
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.measures import move_times
from coordinator_udf.simulation.ownership import Owners
from coordinator_udf.simulation.plan import MemberPlan, NetworkPlan, TopicPlan, WorldPlan
from coordinator_udf.simulation.world import World
from scripts.benchmarks.results import Outcome
from scripts.benchmarks.running import Options, say

_KAFKAS: Final = "org.apache.kafka.clients.consumer."
#: A topic has so many partitions a member before it grows, and so many after.
_BEFORE, _AFTER = 4, 5
_GROWS_MS, _END_MS = 60_000, 80_000
_LATENESS_MS: Final = tuple(range(0, 1_001, 50))
_MEMBERS: Final = (10, 100, 1_000)
_TS, _API = (COLUMNS["responses"].index(name) for name in ("ts", "api"))


class Way(NamedTuple):
    """How a group is assigned anew: what its members and the coordinator are set to."""

    properties: Mapping[str, Any]
    settings: Mapping[str, Any] = {}


_EXTENDED: Final = {"group.classic.client.extensions.enable": True}


def _classic(assignor: str, *, extensions: bool) -> Way:
    properties = {
        "partition.assignment.strategy": f"{_KAFKAS}{assignor}Assignor",
        "classic.client.extensions.enable": extensions,
    }
    return Way(properties, _EXTENDED if extensions else {})


def _client_side(assignor: str) -> Way:
    properties = {"group.protocol": "consumer", "group.local.assignors": f"{_KAFKAS}{assignor}Assignor"}
    return Way(properties, {"group.consumer.client.assignors.enable": True})


#: By name. Members of KIP-848 send heartbeats in its default interval of 5 s, all others in 3 s.
WAYS: Final[dict[str, Way]] = {
    "eager rejoin, range": _classic("Range", extensions=False),
    "eager resync, range": _classic("Range", extensions=True),
    "eager rejoin, sticky": _classic("Sticky", extensions=False),
    "eager resync, sticky": _classic("Sticky", extensions=True),
    "cooperative rejoin": _classic("CooperativeSticky", extensions=False),
    "cooperative resync": _classic("CooperativeSticky", extensions=True),
    "server-side (KIP-848)": Way({"group.protocol": "consumer"}),
    "client-side (KIP-848), sticky": _client_side("CooperativeSticky"),
    "client-side (KIP-848), range": _client_side("Range"),
}


class Cost(NamedTuple):
    """What one growth cost. Times in milliseconds.

    Attributes:
        stop_mean_ms, stop_max_ms: how long a partition that was there before had no owner, over all of them.
        moved: partitions that were there before and have another owner now.
        settled_ms: from when the coordinator first heard of it, or did something, until every partition had its owner.
        requests: JoinGroup and SyncGroup that the coordinator answered on account of it.
    """

    stop_mean_ms: float
    stop_max_ms: int
    moved: int
    settled_ms: int
    requests: int


def world(way: Way, members: int) -> History:
    """Lets a topic grow under a group of so many members that have long been settled."""
    properties = {"metadata.max.age.ms": 300_000, "enable.auto.commit": False, **way.properties}
    plans = tuple(
        # The first one leads, and is the only one that looks for new partitions soon after they came.
        MemberPlan(
            f"c{number}",
            1,
            "g",
            ("t",),
            1_000 + number * 2_000 // members if number else 0,
            {**properties, "metadata.max.age.ms": 5_000} if number == 0 else properties,
            poll_ms=5_000,
            # So that heartbeats, which begin together when a group has formed, have drifted apart.
            lateness_ms=_LATENESS_MS,
        )
        for number in range(members)
    )
    topics = TopicPlan("t", members * _BEFORE), TopicPlan("t", members * _AFTER, _GROWS_MS)
    return World(WorldPlan(plans, topics, _END_MS, way.settings, NetworkPlan((1, 5))), 1).run()


def cost(way: Way, members: int) -> Cost:
    """Measures one growth."""
    history = world(way, members)
    start_ms = history.start_ms + _GROWS_MS
    owners = Owners()
    stops: dict[TopicPartition, int] = {}
    since: dict[TopicPartition, int] = {}
    last_ms = start_ms
    for event in history.events:
        owners.take(event)
        if event.ts_ms < start_ms:
            continue
        if event.partitions:
            last_ms = event.ts_ms
        for partition in event.partitions:
            if partition.partition >= members * _BEFORE:
                continue
            if not owners.of(partition):
                since.setdefault(partition, event.ts_ms)
            elif partition in since:
                stops[partition] = stops.get(partition, 0) + event.ts_ms - since.pop(partition)
    owned = sum(len(owners.of(TopicPartition("t", number))) == 1 for number in range(members * _AFTER))
    if owned != members * _AFTER or since:
        raise AssertionError(f"{owned} of {members * _AFTER} partitions have one owner, expected all")
    answered = sum(
        row[_TS] >= start_ms and row[_API] in {"JoinGroup", "SyncGroup"}
        for said in history.decisions
        for row in said.responses
    )
    return Cost(
        sum(stops.values()) / (members * _BEFORE),
        max(stops.values(), default=0),
        sum(ts_ms >= start_ms for ts_ms in move_times(history.events)),
        last_ms - _first_move_ms(history, start_ms),
        answered,
    )


def _first_move_ms(history: History, start_ms: int) -> int:
    ts, rule = (COLUMNS["transitions"].index(name) for name in ("ts", "rule"))
    times = [row[ts] for said in history.decisions for row in said.transitions if row[ts] >= start_ms and row[rule]]
    return int(min(times))


def run(options: Options) -> Outcome:
    """Measures every way with every number of members."""
    outcome = Outcome()
    for size in _MEMBERS:
        members = options.sized(size, 2)
        for name, way in WAYS.items():
            found = cost(way, members)
            about = f"{members:,} members, {name}"
            say(f"growth: {about}")
            outcome.add(f"{about}: stop, mean", round(found.stop_mean_ms, 1), "ms", "lower")
            outcome.add(f"{about}: stop, longest", found.stop_max_ms, "ms", "lower")
            outcome.add(f"{about}: moved", found.moved, "partitions", "lower")
            outcome.add(f"{about}: all owned after", found.settled_ms, "ms", "lower")
            outcome.add(f"{about}: joins and syncs", found.requests, "requests", "lower")
    outcome.notes.append(
        f"worlds in virtual time: {_BEFORE} partitions a member grow to {_AFTER}, answers take 2 to 10 ms, heartbeats "
        "are sent every 3 s (KIP-848: 5 s)"
    )
    return outcome
