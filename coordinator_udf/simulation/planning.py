"""What a fleet asks of its coordinators, reckoned from worlds of some of its groups: requests a second, by API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from coordinator_udf.simulation.scenario import draw_world
from coordinator_udf.simulation.scenario_fields import Scenario
from coordinator_udf.simulation.world import World


@dataclass(frozen=True, slots=True)
class FleetSecond:
    """A fleet in one second.

    Attributes:
        requests: that came to its coordinators, by API.
        settled: the share of its processes that are settled at the second's end, from 0 to 1; 1 where there are none.
        state_bytes: how much its coordinators' state takes then, beyond that of as many that have no group.
    """

    requests: dict[str, float]
    settled: float
    state_bytes: float

    @property
    def in_all(self) -> float:
        """The requests of all APIs."""
        return sum(self.requests.values())


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """The load of a fleet, each world's groups standing for as many alike as it takes.

    Attributes:
        members: of the fleet.
        sampled: how many of them were simulated.
        seconds: from the worlds' start.
        settled_s: when the last member was told of its partitions, on average over worlds.
    """

    members: int
    sampled: int
    seconds: tuple[FleetSecond, ...]
    settled_s: float

    @property
    def steady(self) -> float:
        """Requests a second in the last quarter, when all is settled."""
        last = self.seconds[len(self.seconds) * 3 // 4 :]
        return sum(second.in_all for second in last) / len(last)

    @property
    def peak(self) -> tuple[int, float]:
        """The second in which most requests come, and how many."""
        number = max(range(len(self.seconds)), key=lambda number: self.seconds[number].in_all)
        return number, self.seconds[number].in_all

    @property
    def unsettled_s(self) -> int:
        """In how many seconds not all processes were settled."""
        return sum(second.settled < 1 for second in self.seconds)

    @property
    def most_state_bytes(self) -> float:
        """The most that the state takes."""
        return max(second.state_bytes for second in self.seconds)


def fleet_load(scenario: Scenario, members: int, worlds: int) -> FleetLoad:
    """Runs worlds of a scenario and reckons from them what so many members ask for."""
    # What happens in the world's last moment belongs to its last second.
    count = max(1, ceil(scenario.end_s))
    requests = [Counter[str]() for _ in range(count)]
    settled, living, state_bytes = [0] * count, [0] * count, [0] * count
    sampled, settled_ms = 0, 0
    for seed in range(worlds):
        # Of the load there is to be the time that the scenario names, however long a world has to settle after that.
        plan = replace(draw_world(scenario, seed), end_ms=round(scenario.end_s * 1000), keeps_requests=True)
        world = World(plan, seed, skips=False)
        empty_bytes = world.state_bytes()
        for second in range(count):
            world.advance(min(plan.start_ms + (second + 1) * 1000 - 1, plan.start_ms + plan.end_ms))
            now_settled, now_living = world.settled()
            settled[second] += now_settled
            living[second] += now_living
            state_bytes[second] += max(0, world.state_bytes() - empty_bytes)
        history = world.run()
        sampled += len({(member.group_id, member.client_id) for member in plan.members})
        told_ms = (event.ts_ms for event in history.events if event.event == "assigned")
        settled_ms += max(told_ms, default=plan.start_ms) - plan.start_ms
        for request in history.answered:
            requests[min(count - 1, (request.arrived_ms - plan.start_ms) // 1000)][request.api] += 1
    seconds = tuple(
        FleetSecond(
            {api: asked * members / sampled for api, asked in requests[second].items()},
            settled[second] / living[second] if living[second] else 1.0,
            state_bytes[second] * members / sampled,
        )
        for second in range(count)
    )
    return FleetLoad(members, sampled, seconds, settled_ms / worlds / 1000)


def load_lines(load: FleetLoad) -> Iterator[str]:
    """Yields the load as lines, every tenth second and the peak, by API."""
    apis = sorted({api for second in load.seconds for api in second.requests})
    worst, most = load.peak
    yield f"{load.members:,} members, reckoned from {load.sampled} simulated ones; requests a second:"
    yield f"  steady {load.steady:,.0f}, at most {most:,.0f} (in second {worst}); settled after {load.settled_s:.0f} s"
    yield (
        f"  not all settled in {load.unsettled_s} of {len(load.seconds)} seconds; "
        f"state at most {load.most_state_bytes / 1e6:,.1f} MB, of shards with few groups each"
    )
    yield "  second " + "".join(f"{api:>24}" for api in apis) + f"{'all':>14}{'settled':>10}{'state/MB':>12}"
    for number in sorted({*range(0, len(load.seconds), 10), worst}):
        row = load.seconds[number]
        counts = "".join(f"{row.requests.get(api, 0):>24,.0f}" for api in apis)
        yield f"  {number:>6} {counts}{row.in_all:>14,.0f}{row.settled:>10.1%}{row.state_bytes / 1e6:>12,.1f}"
