"""Applications that make the calls that recorded ones made, in the one thread that these shared."""

from __future__ import annotations

from collections import defaultdict

from coordinator_udf.members import inputs
from coordinator_udf.members.inputs import CallbackDone, Seek, TopicPartition
from coordinator_udf.members.outputs import Callback
from coordinator_udf.replay.members.one_thread import OneThread, came_before
from coordinator_udf.simulation import events as e
from coordinator_udf.simulation.agenda import Agenda
from coordinator_udf.simulation.application_loops import Members
from coordinator_udf.simulation.process import Process


class RecordedApplications:
    """Applications whose calls come as events (Calls); in onPartitionsAssigned they seek to what they consumed last."""

    def __init__(self, members: Members, agenda: Agenda) -> None:
        self._members = members
        self._agenda = agenda
        self._thread = OneThread()
        self._processes: dict[str, Process] = {}
        self._consumed: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        self._planned: dict[str, set[str]] = defaultdict(set)
        #: What came from the network for processes that another's waiting held.
        self._came: dict[str, list[inputs.Input]] = defaultdict(list)
        self._waiting: list[Process] = []

    def start(self, process: Process) -> None:
        """Lets a member do what it does when it is made."""
        self._processes[process.plan.name] = process
        self._members.tell(process, "start")
        self._give(process, inputs.Tick())

    def happen(self, event: e.Event) -> None:
        """Makes a call, or ends a process."""
        match event:
            case e.Calls(name, call) if self._processes[name].lives:
                if isinstance(call, Seek):
                    self._consumed[name].update(call.offsets)
                self._give(self._processes[name], call)
            case e.PlansCallback(name, method):
                self._planned[name].add(method)
            case e.Looks(name) if self._processes[name].lives and self._processes[name].is_due(self._agenda.now_ms):
                self._give(self._processes[name], inputs.Tick())
            case e.Crashes(name):
                process = self._processes[name]
                self._members.tell(process, "crash")
                self._members.end(process)
                self._note(process)

    def take(self, process: Process, event: inputs.Input) -> None:
        """Gives a member an input, if its thread isn't held where it waits."""
        if not self.is_held(process):
            self._give(process, event)
            return
        if not isinstance(event, inputs.Tick):
            self._came[process.plan.name].append(came_before(event, self._agenda.now_ms))
        call_ms = process.call_deadline_ms()
        if call_ms is not None and call_ms > self._agenda.now_ms:
            # Its background looks around all the same, if that alone can be had.
            self._give(process, inputs.Tick())

    def call_back(self, process: Process, callback: Callback) -> None:
        """Runs a callback; it returns at once, unless the application had a plan for it."""
        name = process.plan.name
        if callback.method == "onPartitionsAssigned":
            consumed = self._consumed[name]
            self._members.give(process, Seek({place: consumed.get(place, 0) for place in callback.partitions}))
        if callback.method in self._planned[name]:
            self._planned[name].remove(callback.method)
        else:
            self._members.give(process, CallbackDone(callback.method))

    def next_call(self) -> tuple[int, Process] | None:
        """Returns when a call next goes on by itself, of those that nobody's waiting holds."""
        waits = [
            (max(call_ms, self._thread.free_at_ms(process.plan.name)), process)
            for process in self._waiting
            if not self.is_held(process) and (call_ms := process.call_deadline_ms()) is not None
        ]
        return min(waits, key=lambda wait: wait[0], default=None)

    def is_held(self, process: Process) -> bool:
        """Tells whether another application waits inside of this one's waiting."""
        return self._thread.is_held(process.plan.name)

    def _give(self, process: Process, event: inputs.Input) -> None:
        self._members.give(process, event)
        self._note(process)

    def _note(self, process: Process) -> None:
        """Takes note of whether a process waits; lets go on who is free because it doesn't any more."""
        is_waiting = process.lives and process.call_deadline_ms() is not None
        held = [other for other in self._waiting if self.is_held(other)]
        self._thread.note(process.plan.name, self._agenda.now_ms, is_waiting=is_waiting)
        self._waiting = [other for other in self._waiting if other is not process] + [process] * is_waiting
        for other in held:
            if other is not process and not self.is_held(other):
                for came in self._came.pop(other.plan.name, []):
                    self._give(other, came)
                self._members.watch(other)
