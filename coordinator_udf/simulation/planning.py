"""What a fleet asks of its coordinators, reckoned from worlds of some of its groups: requests a second, by API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from coordinator_udf.simulation.scenario import Scenario, draw_world
from coordinator_udf.simulation.world import World


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """The load of a fleet, each world's groups standing for as many alike as it takes.

    Attributes:
        members: of the fleet.
        sampled: how many of them were simulated.
        by_second: requests by API in each second from the worlds' start, of the whole fleet.
        settled_s: when the last member was told of its partitions, on average over worlds.
    """

    members: int
    sampled: int
    by_second: tuple[dict[str, float], ...]
    settled_s: float

    def at(self, second: int) -> float:
        """Returns the requests of a second."""
        return sum(self.by_second[second].values())

    @property
    def steady(self) -> float:
        """Requests a second in the last quarter, when all is settled."""
        last = range(len(self.by_second) * 3 // 4, len(self.by_second))
        return sum(map(self.at, last)) / len(last)

    @property
    def peak(self) -> tuple[int, float]:
        """The second in which most requests come, and how many."""
        second = max(range(len(self.by_second)), key=self.at)
        return second, self.at(second)


def fleet_load(scenario: Scenario, members: int, worlds: int) -> FleetLoad:
    """Runs worlds of a scenario and reckons from them what so many members ask for."""
    seconds = [Counter[str]() for _ in range(round(scenario.end_s) + 1)]
    sampled, settled_ms = 0, 0
    for seed in range(worlds):
        # Of the load there is to be the time that the scenario names, however long a world has to settle after that.
        plan = replace(draw_world(scenario, seed), end_ms=round(scenario.end_s * 1000), keeps_requests=True)
        history = World(plan, seed, skips=False).run()
        sampled += len({(member.group_id, member.client_id) for member in plan.members})
        settled_ms += max((event.ts_ms for event in history.events), default=plan.start_ms) - plan.start_ms
        for request in history.answered:
            seconds[min(len(seconds) - 1, (request.arrived_ms - plan.start_ms) // 1000)][request.api] += 1
    by_second = tuple({api: count * members / sampled for api, count in second.items()} for second in seconds)
    return FleetLoad(members, sampled, by_second, settled_ms / worlds / 1000)


def load_lines(load: FleetLoad) -> Iterator[str]:
    """Yields the load as lines, every tenth second and the peak, by API."""
    apis = sorted({api for second in load.by_second for api in second})
    second, most = load.peak
    yield f"{load.members:,} members, reckoned from {load.sampled} simulated ones; requests a second:"
    yield f"  steady {load.steady:,.0f}, at most {most:,.0f} (in second {second}); settled after {load.settled_s:.0f} s"
    yield "  second " + "".join(f"{api:>24}" for api in apis) + f"{'all':>14}"
    for number in sorted({*range(0, len(load.by_second), 10), second}):
        row = load.by_second[number]
        yield f"  {number:>6} " + "".join(f"{row.get(api, 0):>24,.0f}" for api in apis) + f"{load.at(number):>14,.0f}"
