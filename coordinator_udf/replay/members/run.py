"""Feeds the inputs of one recorded member to a fresh machine and compares what it does."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.inputs import Input, Tick
from coordinator_udf.members.machine import MemberMachine
from coordinator_udf.members.outputs import Callback
from coordinator_udf.replay.members.application import RecordedApplication
from coordinator_udf.replay.members.canonical import canonical
from coordinator_udf.replay.members.lines import input_of, line_of
from coordinator_udf.replay.members.recording import Line, MemberRecording, Recording

#: The machine of each protocol, by the module and the class.
_MACHINES = {
    "classic": ("coordinator_udf.members.classic.member", "ClassicMember"),
    "consumer": ("coordinator_udf.members.consumer.member", "ConsumerMember"),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which a member did something else than the recorded one.

    Attributes:
        line: the number of the recording's line that is expected here, or of the input after which ours went on.
        expected: the recorded output, or None if the recording has none here.
        found: ours, or None if our member did nothing more.
        failure: how our member broke, if it did.
    """

    member: str
    line: int
    expected: Line | None
    found: Line | None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class MemberVerdict:
    """How many of a member's recorded outputs ours gave, up to the first difference, and how many not."""

    identical: int
    different: int
    difference: Difference | None


def make_machine(recorded: MemberRecording, backoff_factor: float) -> MemberMachine:
    """Returns a fresh member with the recorded one's settings, drawn member id and backoff factor."""
    start = recorded.inputs[0][1]
    module, name = _MACHINES[recorded.protocol]
    machine = getattr(importlib.import_module(module), name)
    arguments = {"member_id": start["memberId"]} if "memberId" in start else {}
    made: MemberMachine = machine(MemberConfig.parse(start["config"]), lambda: backoff_factor, **arguments)
    return made


def run_member(recording: Recording, recorded: MemberRecording) -> MemberVerdict:
    """Runs one member of a recording up to its first difference."""
    expected = iter(recorded.outputs)
    identical = 0
    line_number = 0
    try:
        for line_number, line in outputs_of(recorded, make_machine(recorded, recording.backoff_factor)):
            number, wanted = next(expected, (line_number, None))
            if wanted is None or canonical(wanted) != canonical(line):
                return _different(recorded, identical, Difference(recorded.name, number, wanted, line))
            identical += 1
    except Exception as error:  # noqa: BLE001  a machine that breaks is a difference like any other
        number, wanted = next(expected, (line_number, None))
        failure = f"{type(error).__name__}: {error}"
        return _different(recorded, identical, Difference(recorded.name, number, wanted, None, failure))
    missing = next(expected, None)
    if missing is not None:
        return _different(recorded, identical, Difference(recorded.name, missing[0], missing[1], None))
    return MemberVerdict(identical, 0, None)


def _different(recorded: MemberRecording, identical: int, difference: Difference) -> MemberVerdict:
    return MemberVerdict(identical, max(len(recorded.outputs) - identical, 1), difference)


def outputs_of(recorded: MemberRecording, machine: MemberMachine) -> Iterator[tuple[int, Line]]:
    """Yields our member's outputs as lines, each with the number of the input line before it."""
    member = RunningMember(recorded.name, machine)
    for number, line in recorded.inputs:
        for output in member.take(line):
            yield number, output
    last_number = recorded.inputs[-1][0]
    for output in member.finish():
        yield last_number, output


class RunningMember:
    """One of our members with the recorded one's application, to which a recording's lines happen."""

    def __init__(self, name: str, machine: MemberMachine) -> None:
        self.name = name
        self._machine = machine
        self._application = RecordedApplication()

    def take(self, line: Line) -> Iterator[Line]:
        """Lets an input line happen, and before it what the member does by itself until then; yields the outputs.

        Raises:
            MissedDeadline: the recorded member did something by itself at a time at which ours would have slept.
        """
        now_ms = line["ts"]
        if line["type"] == "start":
            yield from self._give(now_ms, Tick())
            return
        yield from self.until(now_ms)
        if line["type"] == "crash":
            return
        if line["type"] == "tick":
            _check_deadline(self._machine, now_ms)
        if not self._application.is_plan(line):
            yield from self._give(now_ms, input_of(line))

    def finish(self) -> Iterator[Line]:
        """Lets a call that still waits when the recording ends go on by itself; yields the outputs."""
        while (call_ms := self._machine.call_deadline_ms()) is not None:
            yield from _due(self._machine, self._give, call_ms)

    def until(self, now_ms: int) -> Iterator[Line]:
        """Lets the member do what it does by itself before this time, or at it if a call waits for it."""
        return _due(self._machine, self._give, now_ms)

    def _give(self, now_ms: int, event: Input) -> Iterator[Line]:
        for output in self._machine.handle(now_ms, event):
            yield line_of(output, self.name, now_ms)
            if isinstance(output, Callback):
                for reaction in self._application.reactions(output):
                    yield from self._give(now_ms, reaction)


class MissedDeadline(Exception):
    """The recorded member did something by itself at a time at which ours would have slept."""


def _check_deadline(machine: MemberMachine, now_ms: int) -> None:
    due_ms = machine.next_deadline_ms()
    if due_ms is None or due_ms > now_ms:
        raise MissedDeadline(f"the recorded member had a deadline at {now_ms}, ours has its next at {due_ms}")


def _due(machine: MemberMachine, give: Callable[[int, Input], Iterator[Line]], now_ms: int) -> Iterator[Line]:
    """Lets our member's own deadlines come that lie before the next input, and calls end that wait until then."""
    earliest_ms = 0
    while True:
        due_ms = machine.next_deadline_ms()
        if due_ms is None:
            return
        due_ms = max(due_ms, earliest_ms)
        call_ms = machine.call_deadline_ms()
        if due_ms >= now_ms and (call_ms is None or call_ms > now_ms):
            return
        if due_ms > now_ms:
            raise MissedDeadline(f"a call that should have gone on at {call_ms} still waits at {now_ms}")
        yield from give(due_ms, Tick())
        # A deadline at which nothing happened is not met twice in one millisecond.
        earliest_ms = due_ms + 1
