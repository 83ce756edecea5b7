"""Leaves out what of a world only repeats itself: stretches in which a group is settled, each group on its own.

Groups have nothing to do with each other, so while one is disturbed another's heartbeats needn't be simulated. Left out
is time of the group's own: its members' clocks, what is on its way to and from them, and their sessions come so much
later, and what the world's plan has for them doesn't. Where groups share something that counts what happens (requests
up to the next lost connection, a coordinator that answers once in a while) all of them are left out together.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain

from coordinator_udf.simulation import events as e
from coordinator_udf.simulation.agenda import Agenda
from coordinator_udf.simulation.coordinator import SimulatedCoordinator
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.metadata_ages import (
    AnsweredMs,
    Renewal,
    awaits_metadata,
    date_metadata,
    periods_between,
    renewals,
)
from coordinator_udf.simulation.network import Network
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.process import Process
from coordinator_udf.simulation.sessions import Sessions
from coordinator_udf.simulation.stretches import Rhythm, boundaries_ms, is_settled, learned_ms, requests_of, rhythm

#: As often as it is looked at most whether a group only repeats itself, in milliseconds. Half and double give the same
#: worlds, event for event, in the same time (nine worlds of three scenarios, and one with twelve hours of rest).
_LOOK_MS = 1_000

#: The times, in milliseconds from the start, of what the plan has in store for each process, and for all (None).
_Planned = Mapping[str | None, Sequence[int]]


class _Unit:
    """Groups whose stretches are left out together.

    Attributes:
        groups: their ids.
        members: their processes' names.
        boundaries_ms: when the plan has something in store for them, in order.
        happened_ms: when something last happened that wasn't a heartbeat or a commit.
        look_ms: when it is next to be looked at.
        has_learned: whether it has learned all changes of topics, and was calm since for as long as that takes.
    """

    def __init__(
        self, groups: Iterable[str], members: Collection[MemberPlan], plan: WorldPlan, planned: _Planned
    ) -> None:
        """Makes one of groups with these members.

        Args:
            planned: what the plan has in store for all processes.
        """
        self.groups = frozenset(groups)
        self.members = frozenset(member.name for member in members)
        times_ms = [time for name in (None, *self.members) for time in planned.get(name, ())]
        times_ms += [pause.at_ms + pause.length_ms for pause in plan.pauses]
        times_ms += [*boundaries_ms(members), plan.end_ms]
        self.boundaries_ms = deque(sorted(plan.start_ms + time for time in times_ms))
        self.happened_ms = self.look_ms = plan.start_ms
        self.has_learned = False


def _units_of(plan: WorldPlan) -> list[_Unit]:
    """Returns a plan's groups as units: each by itself, or all as one where they share something."""
    planned: dict[str | None, list[int]] = defaultdict(list)
    for time_ms, event in e.planned(plan):
        planned[e.process_of(event)].append(time_ms)
    members: dict[str, list[MemberPlan]] = defaultdict(list)
    for member in plan.members:
        members[member.group_id].append(member)
    if plan.cadence_ms > 0 or plan.network.loss > 0:
        return [_Unit(members, plan.members, plan, planned)]
    return [_Unit([group_id], of_group, plan, planned) for group_id, of_group in members.items()]


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
        sessions: Sessions,
        put_off_deadlines: Callable[[frozenset[str], int], None],
        watch: Callable[[Process], None],
        answered_ms: AnsweredMs,
    ) -> None:
        """Makes one for a world whose stable stretches repeat themselves (stretches.repeats_itself).

        Args:
            consumer_heartbeat_ms: the heartbeat interval that the coordinator tells KIP-848 members.
            put_off_deadlines: lets some processes' deadlines be so much later.
            watch: has a process's next deadline planned anew.
            answered_ms: tells when metadata comes that a process asks for at a time.
        """
        self._plan = plan
        self._consumer_heartbeat_ms = consumer_heartbeat_ms
        self._agenda = agenda
        self._network = network
        self._coordinator = coordinator
        self._processes = processes
        self._history = history
        self._sessions = sessions
        self._put_off_deadlines = put_off_deadlines
        self._watch = watch
        self._answered_ms = answered_ms
        self._units = _units_of(plan)
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
        living = self._living(unit)
        if not living or not unit.boundaries_ms or not self._is_at_rest(unit, living):
            return
        found = rhythm(self._plan, living, now_ms - self._plan.start_ms, self._consumer_heartbeat_ms)
        if found is None:
            return
        settled_ms = self._settled_ms(unit, living, found)
        if settled_ms > now_ms:
            unit.look_ms = max(settled_ms, unit.look_ms)
            return
        unit.has_learned = True
        self._leave_out_periods(unit, living, found)

    def _living(self, unit: _Unit) -> list[Process]:
        """Returns a unit's processes that are there; none while one that isn't is about to be started again."""
        begun = [self._processes[name] for name in unit.members if name in self._processes]
        if any(process.will_be_back(self._processes) for process in begun):
            return []
        return [process for process in begun if process.lives]

    def _settled_ms(self, unit: _Unit, living: list[Process], found: Rhythm) -> int:
        """Returns from when on a unit's members only repeat themselves, if nothing happens until then."""
        settled_ms = unit.happened_ms + found.settling_ms
        if unit.has_learned:
            return settled_ms
        start_ms = self._plan.start_ms
        return max(settled_ms, start_ms + learned_ms(self._plan, living, unit.happened_ms - start_ms))

    def _leave_out_periods(self, unit: _Unit, living: list[Process], found: Rhythm) -> None:
        """Leaves out as many periods as fit before what comes next, if any does."""
        now_ms = self._agenda.now_ms
        periods = (unit.boundaries_ms[0] - now_ms - found.settling_ms) // found.period_ms
        sent = list(requests_of(living, self._consumer_heartbeat_ms))
        in_period = sum(found.period_ms // interval_ms for _, interval_ms in sent)
        before_loss = self._network.requests_before_loss
        if before_loss is not None and in_period:
            # What is on its way now takes as long as it would have then; it is to have arrived before that.
            periods = min(periods, before_loss // in_period - 1)
        if periods < 1 or self._coordinator.sessions(unit.groups) != len(living):
            return
        last_ms = now_ms + periods * found.period_ms
        ages = {process.name: renewals(process, self._answered_ms, last_ms) for process in living}
        periods = periods_between(chain.from_iterable(ages.values()), now_ms, found.period_ms, periods)
        if periods < 1:
            return
        by_ms = periods * found.period_ms
        for api, interval_ms in sent:
            self._history.count(api, by_ms // interval_ms)
        self._network.leave_out(periods * in_period)
        self._leave_out(unit, living, by_ms)
        for process in living:
            self._renew(process, ages[process.name], by_ms)

    def _renew(self, process: Process, asked: list[Renewal], by_ms: int) -> None:
        """Lets a process's metadata be as old as it would be, had the time that was left out passed for it."""
        before_ms = process.next_deadline_ms()
        date_metadata(process, asked, self._agenda.now_ms + by_ms, by_ms)
        if process.next_deadline_ms() != before_ms:
            self._watch(process)

    def _is_at_rest(self, unit: _Unit, living: list[Process]) -> bool:
        now_ms = self._agenda.now_ms
        at_ms = now_ms - self._plan.start_ms
        stands = self._plan.pauses_until_ms(at_ms) >= 0 or any(one.plan.hangs_until_ms(at_ms) >= 0 for one in living)
        return (
            not stands
            and is_settled(living)
            and not any(map(awaits_metadata, living))
            and self._network.is_calm(now_ms, unit.members)
        )

    def _leave_out(self, unit: _Unit, living: list[Process], by_ms: int) -> None:
        for process in living:
            process.put_off(by_ms)
        self._put_off_deadlines(unit.members, by_ms)
        self._network.put_off(by_ms, unit.members)
        self._coordinator.put_off(by_ms, unit.groups)
        self._sessions.put_off(by_ms, unit.members)
        self._agenda.put_off(by_ms, unit.members if len(self._units) > 1 else None)
        unit.look_ms = self._agenda.now_ms + by_ms
        unit.happened_ms = unit.look_ms
