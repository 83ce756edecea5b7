"""Processes in which all stands still for a while: what would happen in them meanwhile does when they go on."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator_udf.simulation import events as e
from coordinator_udf.simulation.agenda import Agenda
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.process import Process


class Hangs:
    """When the processes of a world hang.

    Attributes:
        are_any: whether any ever does.
    """

    def __init__(self, plan: WorldPlan, agenda: Agenda, processes: Mapping[str, Process]) -> None:
        self.are_any = any(member.hangs for member in plan.members)
        self._start_ms = plan.start_ms
        self._agenda = agenda
        self._processes = processes

    def until_ms(self, process: Process) -> int | None:
        """Returns when a process goes on that hangs now; None if it doesn't."""
        if not process.plan.hangs:
            return None
        until_ms = process.plan.hangs_until_ms(self._agenda.now_ms - self._start_ms)
        return None if until_ms < 0 else self._start_ms + until_ms

    def put_off(self, event: e.Event) -> bool:
        """Puts an event off in whose process all stands still. Returns whether it did."""
        process = self._processes.get(e.member_of(event) or "")
        until_ms = None if process is None or not process.lives else self.until_ms(process)
        if process is None or until_ms is None:
            return False
        if isinstance(event, e.Polls) and process.poll_at_ms == self._agenda.now_ms:
            process.poll_at_ms = until_ms
        self._agenda.at(until_ms, event)
        return True
