"""The applications of a world's members: each polls, works, and polls again, until it stalls, closes or is killed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from coordinator_udf.members import inputs
from coordinator_udf.members.outputs import Callback
from coordinator_udf.simulation import events as e
from coordinator_udf.simulation.agenda import Agenda
from coordinator_udf.simulation.application import (
    Records,
    first_poll_ms,
    next_poll_ms,
    polls_then_ms,
    processing_until_ms,
    works_long,
)
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.process import Committed, Doing, Process

#: How often a member gets a poll at one moment at most, for an application that is blocked in poll: it only bounds what
#: a member that always has something new would do at that moment. Half and double change nothing in nine worlds.
_POLLS_AT_ONCE = 10

#: What a member is given only by somebody who reads.
_FROM_NETWORK = (inputs.Response, inputs.Disconnect, inputs.Metadata)

#: As long as an application that closes its consumer waits for it at most, in milliseconds: Kafka's default
#: (CloseOptions and, before it, KafkaConsumer.DEFAULT_CLOSE_TIMEOUT_MS).
_CLOSE_MS = 30_000


class Members(Protocol):
    """What a world does for the applications of its members."""

    def give(self, process: Process, event: inputs.Input) -> bool:
        """Gives a member an input; returns whether it did anything."""

    def watch(self, process: Process) -> None:
        """Plans a member's next deadline anew."""

    def tell(
        self, process: Process, event: str, partitions: Iterable[inputs.TopicPartition] = (), detail: str | None = None
    ) -> None:
        """Takes note of something that an application did or was told."""

    def end(self, process: Process) -> None:
        """Ends a process, and with it its connections."""

    def committed_of(self, process: Process) -> Committed:
        """Returns what tells the committed offsets of a process's group."""

    def chance(self, name: str) -> float:
        """Returns a number from 0 to 1 that looks drawn, and is the same for the same time and name."""


class Applications(Protocol):
    """What makes the calls on members, and what they call back."""

    def start(self, process: Process) -> None:
        """Lets a process begin whose member has just been made."""

    def happen(self, event: e.Event) -> None:
        """Lets something happen that concerns applications only."""

    def take(self, process: Process, event: inputs.Input) -> None:
        """Gives a member what comes from the network, or a tick, and goes on with what came of it."""

    def call_back(self, process: Process, callback: Callback) -> None:
        """Runs a rebalance callback, to its end or until it is to end."""

    def next_call(self) -> tuple[int, Process] | None:
        """Returns when a call next goes on by itself before all else of its millisecond, and whose; None if none."""


class ApplicationLoops:
    """Applications as their members' plans have them."""

    def __init__(self, members: Members, agenda: Agenda, records: Records, history: History) -> None:
        self._members = members
        self._agenda = agenda
        self._records = records
        self._history = history
        self._processes: dict[str, Process] = {}

    def start(self, process: Process) -> None:
        """Subscribes and begins to poll."""
        self._processes[process.plan.name] = process
        process.loop_ms = self._agenda.now_ms
        self._members.tell(process, "start")
        self._history.subscribed[process.name] = process.subscription()
        self._members.give(process, process.subscription())
        self._go_on(process)

    def next_call(self) -> tuple[int, Process] | None:
        """Returns None: a call that waits goes on at its member's deadline like all that a member does by itself."""
        return None

    def happen(self, event: e.Event) -> None:
        """Lets an application's loop go on, stall, or end."""
        match event:
            case (
                e.Polls(name)
                | e.Stalls(name)
                | e.Resumes(name)
                | e.CallbackOver(name)
                | e.Resubscribes(name)
                | e.Rejoins(name)
            ):
                process = self._living(name)
                if process is not None:
                    self._loop(process, event)
            case e.Closes(name) | e.Crashes(name):
                self._ends_for_good(name)
                process = self._living(name)
                if process is not None:
                    self._end(process, is_crash=isinstance(event, e.Crashes))

    def _ends_for_good(self, name: str) -> None:
        """Has nobody start a process again that has failed."""
        process = self._processes.get(name)
        if process is not None and process.has_failed:
            process.has_failed = False
            if not process.lives:
                self._history.settles(self._agenda.now_ms, process.plan.group_id, name, is_settled=True)

    def _resumes_after(self, process: Process, length_ms: int) -> None:
        process.resumes_ms = self._agenda.now_ms + length_ms
        self._agenda.at(process.resumes_ms, e.Resumes(process.name))

    def _living(self, name: str) -> Process | None:
        process = self._processes.get(name)
        return process if process is not None and process.lives else None

    def _loop(self, process: Process, event: e.Event) -> None:
        """Lets the application's loop go on: poll, then work, then poll again, unless it stalls."""
        match event:
            case e.Polls() if process.poll_at_ms == self._agenda.now_ms and process.doing is Doing.RUNNING:
                process.poll_at_ms = None
                self._go_on(process)
            case e.Stalls(_, length_ms) if process.doing is Doing.RUNNING:
                self._poll(process)
                if process.has_failed:
                    return
                process.doing = Doing.STALLED
                process.poll_at_ms = None
                self._members.tell(process, "stall")
                self._resumes_after(process, length_ms)
            case e.Stalls(_, length_ms) if process.doing is Doing.STALLED:
                self._resumes_after(process, max(length_ms, process.resumes_ms - self._agenda.now_ms))
            case e.Resumes() if process.doing is Doing.STALLED and self._agenda.now_ms >= process.resumes_ms:
                self._members.tell(process, "resume")
                process.doing = Doing.RUNNING
                process.loop_ms = self._agenda.now_ms
                self._go_on(process)
            case e.Resubscribes() | e.Rejoins() if process.doing is Doing.STALLED:
                # It stands still: that comes when it goes on.
                self._agenda.at(process.resumes_ms, event)
            case e.Resubscribes(_, topics) if process.doing is Doing.RUNNING:
                self._history.subscribed[process.name] = inputs.Subscribe(topics)
                self._members.give(process, inputs.Subscribe(topics))
                self._go_on(process)
            case e.Rejoins(_, since_ms) if process.doing is Doing.RUNNING and process.joined_ms < since_ms:
                self._members.give(process, inputs.EnforceRebalance())
                self._go_on(process)
            case e.CallbackOver(_, method):
                process.in_callback = None
                self.take(process, inputs.CallbackDone(method))

    def _end(self, process: Process, *, is_crash: bool) -> None:
        if is_crash:
            self._members.tell(process, "crash")
            self._members.end(process)
        elif process.in_callback is not None:
            # Its application is in poll until then.
            self._agenda.at(process.in_callback[1], e.Closes(process.plan.name))
        elif process.doing is not Doing.CLOSING:
            self._close(process)

    def _close(self, process: Process) -> None:
        self._members.tell(process, "close")
        process.doing = Doing.CLOSING
        self._members.give(process, inputs.Close(_CLOSE_MS))
        self._read(process)

    def take(self, process: Process, event: inputs.Input) -> None:
        """Gives a member an input. A classic application that is in poll goes on at once with what came of it."""
        if isinstance(event, _FROM_NETWORK) and not self._is_reading(process):
            process.unread.append(event)
            if process.doing is Doing.RUNNING and process.in_callback is None:
                self._poll_at(process, polls_then_ms(process, self._agenda.now_ms))
            return
        was_settled = process.is_settled
        happened = self._hear(process, event)
        # What a settled member does by itself, which are heartbeats, is nothing to its application.
        concerns = not isinstance(event, inputs.Tick) and (
            happened or isinstance(event, (inputs.Metadata, inputs.CallbackDone))
        )
        if process.doing is not Doing.RUNNING:
            return
        stays_settled = was_settled and process.is_settled
        if stays_settled and not concerns:
            self._poll_after_commit(process)
            return
        if stays_settled and isinstance(event, inputs.Metadata) and works_long(process.plan, process.config):
            # Whether there is anything new in it, its next poll sees.
            self._poll_at(process, polls_then_ms(process, self._agenda.now_ms))
            return
        if not process.is_threaded:
            until_ms = processing_until_ms(process, self._agenda.now_ms)
            # Who is known to have joined before it would be through was in poll.
            if until_ms is not None and not process.timekeeper.is_known_to_send(
                "JoinGroup", self._agenda.now_ms, until_ms
            ):
                self._poll_at(process, until_ms)
                return
            for _ in range(_POLLS_AT_ONCE):
                # While a JoinGroup or SyncGroup waits for its answer, polls do nothing.
                if (process.join_req is not None and not process.unread) or not self._poll(process):
                    break
        self._plan_poll(process)

    def _is_reading(self, process: Process) -> bool:
        """Tells whether a process reads what comes from the network: in a call, or by a thread behind it.

        A classic member's heartbeat thread does each retry.backoff.ms, which is taken for at once; so is an application
        that doesn't work for longer between two polls.
        """
        if process.has_reader or process.doing is Doing.CLOSING or process.call_deadline_ms() is not None:
            return True
        if process.doing is not Doing.RUNNING or process.in_callback is not None:
            return False
        return not works_long(process.plan, process.config) or processing_until_ms(process, self._agenda.now_ms) is None

    def _hear(self, process: Process, event: inputs.Input) -> bool:
        """Gives a member what comes from the network, a tick or a callback's end; returns whether it did anything."""
        if (isinstance(event, inputs.Response) and event.req == process.join_req) or isinstance(
            event, inputs.Disconnect
        ):
            process.join_req = None
        return self._give(process, event)

    def _read(self, process: Process) -> None:
        """Gives a member what has come while nobody read."""
        unread, process.unread = process.unread, []
        for event in unread:
            self._hear(process, event)

    def _poll_after_commit(self, process: Process) -> None:
        """Plans the poll that commits what was due when the last commit had no answer yet."""
        if process.idle_since_ms is None or process.in_callback is not None:
            return
        at_ms = first_poll_ms(process, self._agenda.now_ms)
        if at_ms is not None:
            self._poll_at(process, at_ms)

    def call_back(self, process: Process, callback: Callback) -> None:
        """Runs a callback for as long as the plan says."""
        # Its thread goes on with what comes next, and wakes it up for that.
        process.has_looked_twice = False
        for reaction in process.reactions(callback, self._members.committed_of(process)):
            self._members.give(process, reaction)
        if process.plan.callback_ms:
            over_ms = self._agenda.now_ms + process.plan.callback_ms
            process.in_callback = callback, over_ms
            self._agenda.at(over_ms, e.CallbackOver(process.plan.name, callback.method))

    def _go_on(self, process: Process) -> None:
        self._poll(process)
        self._plan_poll(process)

    def _poll(self, process: Process) -> bool:
        """Lets an application poll, with all records read that there are; returns whether anything came of it."""
        if process.in_callback is not None:
            return False
        process.last_poll_ms = self._agenda.now_ms
        if process.unread:
            self._read(process)
        unknown = process.owned - process.positions.keys()
        if unknown:
            for seek in process.fetch_positions(unknown, self._members.committed_of(process)):
                self._members.give(process, seek)
        read = self._records.end_offsets(process.positions, self._agenda.now_ms)
        # Mostly nothing has come.
        if read != process.positions and any(
            process.positions[partition] < offset for partition, offset in read.items()
        ):
            process.positions.update(read)
            self._members.give(process, inputs.Consumed(read))
        return self._give(process, inputs.Poll())

    def _give(self, process: Process, event: inputs.Input) -> bool:
        """Gives a member an input; closes it if poll throws an exception that ends its application."""
        happened = self._members.give(process, event)
        if process.has_failed and process.doing is Doing.RUNNING:
            self._close(process)
        return happened and not process.has_failed

    def _plan_poll(self, process: Process) -> None:
        """Plans an application's next poll, if none is planned before it."""
        if process.has_failed:
            return
        at_ms = next_poll_ms(process, self._records, self._agenda.now_ms, self._members.chance)
        if at_ms is not None:
            self._poll_at(process, at_ms)

    def _poll_at(self, process: Process, at_ms: int) -> None:
        if process.poll_at_ms is None or not self._agenda.now_ms < process.poll_at_ms <= at_ms:
            process.poll_at_ms = at_ms
            process.is_watching = not process.is_settled
            self._agenda.at(at_ms, e.Polls(process.name))
