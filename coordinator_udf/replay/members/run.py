"""Feeds the inputs of one recorded member to a fresh machine and compares what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coordinator_udf.members.classic.member import ClassicMember
from coordinator_udf.members.config import MemberConfig
from coordinator_udf.members.consumer.member import ConsumerMember
from coordinator_udf.members.inputs import Input, Tick
from coordinator_udf.members.machine import MemberMachine
from coordinator_udf.members.outputs import Callback
from coordinator_udf.replay.members.application import RecordedApplication
from coordinator_udf.replay.members.canonical import canonical
from coordinator_udf.replay.members.lines import input_of, line_of
from coordinator_udf.replay.members.one_thread import OneThread, came_before
from coordinator_udf.replay.members.recording import Line, MemberRecording, RecordedMembers

_FROM_NETWORK = frozenset({"response", "disconnect", "metadata"})


@dataclass(frozen=True, slots=True)
class MemberDifference:
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
    difference: MemberDifference | None


def make_machine(recorded: MemberRecording, backoff_factor: float) -> MemberMachine:
    """Returns a fresh member with the recorded one's settings, drawn member id and backoff factor."""
    start = recorded.inputs[0][1]
    config = MemberConfig.parse(start["config"])
    if recorded.protocol == "classic":
        return ClassicMember(config, lambda: backoff_factor)
    return ConsumerMember(config, lambda: backoff_factor, member_id=start["memberId"])


def run_members(recording: RecordedMembers) -> dict[str, MemberVerdict]:
    """Runs all members of a recording, each up to its first difference; returns what came of them by name."""
    thread = OneThread()
    runs = {recorded.name: _Run(recorded, recording.backoff_factor, thread) for recorded in recording.members}
    for number, line in recording.lines:
        for run in runs.values():
            run.wait_until(number, line["ts"])
        if line["dir"] == "in" and "m" in line:
            runs[line["m"]].take(number, line)
    return {name: run.end() for name, run in runs.items()}


class _Run:
    """One member's run, up to its first difference."""

    def __init__(self, recorded: MemberRecording, backoff_factor: float, thread: OneThread) -> None:
        self._recorded = recorded
        self._backoff_factor = backoff_factor
        self._thread = thread
        self._member: RunningMember | None = None
        self._expected = iter(recorded.outputs)
        self._identical = 0
        self._difference: MemberDifference | None = None

    def take(self, number: int, line: Line) -> None:
        """Lets an input happen."""
        self._compare(number, line["ts"], lambda: self._started().take(line))

    def wait_until(self, number: int, now_ms: int) -> None:
        """Lets a call that waits go on by itself."""
        member = self._member
        if member is not None and member.is_waiting:
            self._compare(number, now_ms, lambda: member.until(now_ms))

    def end(self) -> MemberVerdict:
        """Lets a call that still waits go on; returns what came of the member."""
        last_number, last = self._recorded.inputs[-1]
        if self._member is not None:
            self._compare(last_number, last["ts"], self._member.finish)
        missing = next(self._expected, None)
        if self._difference is None and missing is not None:
            self._difference = MemberDifference(self._recorded.name, missing[0], missing[1], None)
        if self._difference is None:
            return MemberVerdict(self._identical, 0, None)
        different = max(len(self._recorded.outputs) - self._identical, 1)
        return MemberVerdict(self._identical, different, self._difference)

    def _started(self) -> RunningMember:
        if self._member is None:
            machine = make_machine(self._recorded, self._backoff_factor)
            self._member = RunningMember(self._recorded.name, machine, self._thread)
        return self._member

    def _compare(self, number: int, now_ms: int, happen: Callable[[], Iterator[Line]]) -> None:
        if self._difference is not None:
            return
        name = self._recorded.name
        try:
            for line in happen():
                at, wanted = next(self._expected, (number, None))
                if wanted is None or canonical(wanted) != canonical(line):
                    self._difference = MemberDifference(name, at, wanted, line)
                    break
                self._identical += 1
        except Exception as error:  # noqa: BLE001  a machine that breaks is a difference like any other
            at, wanted = next(self._expected, (number, None))
            self._difference = MemberDifference(name, at, wanted, None, f"{type(error).__name__}: {error}")
        if self._difference is not None:
            # It holds nobody up any more.
            self._thread.note(name, now_ms, is_waiting=False)


class RunningMember:
    """One of our members with the recorded one's application, to which a recording's lines happen."""

    def __init__(self, name: str, machine: MemberMachine, thread: OneThread | None = None) -> None:
        """Takes the thread that the member shares with others, if it does."""
        self.name = name
        self._machine = machine
        self._application = RecordedApplication()
        self._thread = OneThread() if thread is None else thread
        #: What came from the network while another member's waiting held this one's.
        self._came: list[Line] = []

    @property
    def is_waiting(self) -> bool:
        """Whether the application is in a call that goes on by itself."""
        return self._machine.call_deadline_ms() is not None

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
            self._thread.note(self.name, now_ms, is_waiting=False)
            return
        if line["type"] == "tick":
            yield from self._tick(now_ms)
        elif line["type"] in _FROM_NETWORK and self._thread.is_held(self.name):
            # Its background looks around all the same, if that alone can be had.
            self._came.append(line)
            call_ms = self._machine.call_deadline_ms()
            if call_ms is not None and call_ms > now_ms:
                yield from self._give(now_ms, Tick())
        elif not self._application.is_plan(line):
            yield from self._give(now_ms, input_of(line))

    def _tick(self, now_ms: int) -> Iterator[Line]:
        """Lets the recorded member's deadline come, which has to be ours too.

        Metadata is excepted: when a backoff of its requests is forgotten depends on when somebody looks.
        """
        due_ms = self._machine.next_deadline_ms()
        for line in self._give(now_ms, Tick()):
            if (due_ms is None or due_ms > now_ms) and line["type"] != "metadataRequest":
                raise MissedDeadline(f"the recorded member had a deadline at {now_ms}, ours has its next at {due_ms}")
            yield line

    def finish(self) -> Iterator[Line]:
        """Lets a call that still waits when the recording ends go on by itself; yields the outputs."""
        while (call_ms := self._machine.call_deadline_ms()) is not None:
            yield from self.until(max(call_ms, self._thread.free_at_ms(self.name)))

    def until(self, now_ms: int) -> Iterator[Line]:
        """Lets the member do what it does by itself before this time, or at it if a call waits for it.

        Raises:
            MissedDeadline: a call goes on later than it says.
        """
        if not self._thread.is_held(self.name):
            came, self._came = self._came, []
            for line in came:
                yield from self._give(self._thread.free_at_ms(self.name), came_before(input_of(line), line["ts"]))
        earliest_ms = 0
        while (due_ms := self._machine.next_deadline_ms()) is not None:
            due_ms = max(due_ms, earliest_ms)
            call_ms = self._machine.call_deadline_ms()
            if due_ms >= now_ms and (call_ms is None or call_ms > now_ms):
                return
            if call_ms is not None and call_ms <= due_ms:
                if self._thread.is_held(self.name):
                    return
                due_ms = max(due_ms, self._thread.free_at_ms(self.name))
            if due_ms > now_ms:
                raise MissedDeadline(f"a call that should have gone on at {call_ms} still waits at {now_ms}")
            yield from self._give(due_ms, Tick())
            # A deadline at which nothing happened is not met twice in one millisecond.
            earliest_ms = due_ms + 1

    def _give(self, now_ms: int, event: Input) -> Iterator[Line]:
        outputs = self._machine.handle(now_ms, event)
        self._thread.note(self.name, now_ms, is_waiting=self.is_waiting)
        for output in outputs:
            yield line_of(output, self.name, now_ms)
            if isinstance(output, Callback):
                for reaction in self._application.reactions(output):
                    yield from self._give(now_ms, reaction)


class MissedDeadline(Exception):
    """The recorded member did something by itself at a time at which ours would have slept."""
