"""Leaves out what of a world only repeats itself: stretches in which a group is settled, each group on its own.

Groups have nothing to do with each other, so while one is disturbed another's heartbeats needn't be simulated. Left out
is time of the group's own: its members' clocks, what is on its way to and from them, and their sessions come so much
later, and what the world's plan has for them doesn't. Where groups share something that counts what happens (requests
up to the next lost connection, a coordinator that answers once in a while) all of them are left out together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from coordinator_udf.simulation import events as e
from coordinator_udf.simulation.agenda import Agenda
from coordinator_udf.simulation.coordinator import SimulatedCoordinator
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.network import Network
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.process import Process
from coordinator_udf.simulation.stretches import boundaries_ms, is_settled, learned_ms, requests_of, rhythm

#: As often as it is looked at most whether a group only repeats itself, in milliseconds. Half and double give the same
#: worlds, event for event, in the same time (nine worlds of three scenarios, and one with twelve hours of rest).
_LOOK_MS = 1_000


class _Unit:
    """Groups whose stretches are left out together.

    Attributes:
        members: their processes' names.
        boundaries_ms: when the plan has something in store for them, in order.
        happened_ms: when something last happened that wasn't a heartbeat or a commit.
        look_ms: when it is next to be looked at.
    """

    def __init__(self, groups: Iterable[str], plan: WorldPlan) -> None:
        self.groups = frozenset(groups)
        members = [member for member in plan.members if member.group_id in self.groups]
        self.members = frozenset(member.name for member in members)
        self.boundaries_ms = deque(sorted(plan.start_ms + time for time in self._times_ms(members, plan)))
        self.happened_ms = self.look_ms = plan.start_ms

    def _times_ms(self, members: list[MemberPlan], plan: WorldPlan) -> list[int]:
        planned = [time for time, event in e.planned(plan) if e.process_of(event) in {None, *self.members}]
        return [*planned, *boundaries_ms(members), plan.end_ms]


class Skipping:
    """What leaves stretches of a world out.

    Attributes:
        look_ms: when it is next to be asked to look.
    """

    def __init__(
        self,
        plan: WorldPlan,
        consumer_heartbeat_ms: int,
        *,
        agenda: Agenda,
        network: Network,
        coordinator: SimulatedCoordinator,
        processes: Mapping[str, Process],
        history: History,
        put_off_deadlines: Callable[[frozenset[str], int], None],
    ) -> None:
        """Makes one for a world whose stable stretches repeat themselves (stretches.repeats_itself).

        Args:
            consumer_heartbeat_ms: the heartbeat interval that the coordinator tells KIP-848 members.
            put_off_deadlines: lets some processes' deadlines be so much later.
        """
        self._plan = plan
        self._consumer_heartbeat_ms = consumer_heartbeat_ms
        self._agenda = agenda
        self._network = network
        self._coordinator = coordinator
        self._processes = processes
        self._history = history
        self._put_off_deadlines = put_off_deadlines
        groups = list(dict.fromkeys(member.group_id for member in plan.members))
        is_shared = plan.cadence_ms > 0 or plan.network.loss > 0
        self._units = [_Unit(groups, plan)] if is_shared else [_Unit([group_id], plan) for group_id in groups]
        self._unit_of = {name: unit for unit in self._units for name in unit.members}
        self.look_ms = plan.start_ms

    def happened(self, process: str | None) -> None:
        """Takes note that something happened to a process, or (None) to all."""
        if process is not None:
            self._unit_of[process].happened_ms = self._agenda.now_ms
        else:
            for unit in self._units:
                unit.happened_ms = self._agenda.now_ms

    def look(self) -> None:
        """Leaves out what only repeats itself, of each group until the plan has something in store for it."""
        for unit in self._units:
            if unit.look_ms <= self._agenda.now_ms:
                self._look_at(unit)
        self.look_ms = min(unit.look_ms for unit in self._units)

    def _look_at(self, unit: _Unit) -> None:
        now_ms = self._agenda.now_ms
        while unit.boundaries_ms and unit.boundaries_ms[0] <= now_ms:
            # Members are cut off or slow from then on, or no longer.
            unit.happened_ms = max(unit.happened_ms, unit.boundaries_ms.popleft())
        unit.look_ms = now_ms + _LOOK_MS
        living = [process for name in unit.members if (process := self._processes.get(name)) and process.lives]
        if not living or not unit.boundaries_ms or not self._is_at_rest(unit, living):
            return
        found = rhythm(self._plan, living, self._consumer_heartbeat_ms)
        learned = self._plan.start_ms + learned_ms(self._plan, living)
        settled_ms = max(unit.happened_ms + found.settling_ms, learned)
        if settled_ms > now_ms:
            unit.look_ms = max(settled_ms, unit.look_ms)
            return
        periods = (unit.boundaries_ms[0] - now_ms - found.settling_ms) // found.period_ms
        sent = list(requests_of(living, self._consumer_heartbeat_ms))
        in_period = sum(found.period_ms // interval_ms for _, interval_ms in sent)
        before_loss = self._network.requests_before_loss
        if before_loss is not None and in_period:
            periods = min(periods, before_loss // in_period)
        if periods < 1 or self._coordinator.sessions(unit.groups) != len(living):
            return
        by_ms = periods * found.period_ms
        for api, interval_ms in sent:
            self._history.count(api, by_ms // interval_ms)
        self._network.leave_out(periods * in_period)
        self._leave_out(unit, living, by_ms)

    def _is_at_rest(self, unit: _Unit, living: list[Process]) -> bool:
        now_ms = self._agenda.now_ms
        at_ms = now_ms - self._plan.start_ms
        stands = any(process.plan.hangs_until_ms(at_ms) >= 0 for process in living)
        return not stands and is_settled(living) and self._network.is_calm(now_ms, unit.members)

    def _leave_out(self, unit: _Unit, living: list[Process], by_ms: int) -> None:
        for process in living:
            process.put_off(by_ms)
        self._put_off_deadlines(unit.members, by_ms)
        self._network.put_off(by_ms, unit.members)
        self._coordinator.put_off(by_ms, unit.groups)
        self._agenda.put_off(by_ms, unit.members if len(self._units) > 1 else None)
        unit.look_ms = self._agenda.now_ms + by_ms
        unit.happened_ms = unit.look_ms
