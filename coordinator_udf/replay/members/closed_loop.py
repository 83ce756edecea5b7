"""Runs a recorded loop with our members against our shard; only the application and the network are the recording's.

From the recording come the application's calls and what it does in callbacks, when requests and answers arrive, which
of them get lost, what the cluster looks like, and which broker FindCoordinator names. All that members send and all
that the coordinator answers is ours, and is compared with Kafka's event by event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coordinator_udf.replay.members.canonical import canonical
from coordinator_udf.replay.members.failovers import (
    find_failovers,
    is_answered,
    recorded_answers,
    recorded_requests,
)
from coordinator_udf.replay.members.one_thread import OneThread
from coordinator_udf.replay.members.recorded_coordinator import RecordedCoordinator, RequestKey
from coordinator_udf.replay.members.recording import Line, MemberRecording, Recording
from coordinator_udf.replay.members.run import Difference, MemberVerdict, RunningMember, make_machine

_FIND_COORDINATOR = "FindCoordinator"


def member_ids(recording: Recording) -> dict[RequestKey, str]:
    """Returns the ids that Kafka's coordinator made for joining members that had none, by the request.

    An answer that nobody saw doesn't tell it; then the id is one that begins with the client's id or its instance id
    and that a later answer names.
    """
    answers = recorded_answers(recording)
    found: dict[RequestKey, str] = {}
    unknown: list[tuple[RequestKey, str]] = []
    for key, sent in recorded_requests(recording).items():
        if sent["api"] == "JoinGroup" and not sent["body"]["memberId"]:
            member_id = answers.get(key, {}).get("memberId")
            if member_id:
                found[key] = member_id
            else:
                unknown.append((key, sent["body"].get("groupInstanceId") or key[0]))
    named = dict.fromkeys(
        member["memberId"] for body in answers.values() if "leader" in body for member in body.get("members", ())
    )
    free = [member_id for member_id in named if member_id not in set(found.values())]
    for key, prefix in unknown:
        found[key] = next((known for known in free if known.startswith(f"{prefix}-")), f"{prefix}-{key[0]}-{key[1]}")
        if found[key] in free:
            free.remove(found[key])
    return found


def run_closed_loop(recording: Recording) -> MemberVerdict:
    """Runs a recorded loop up to its first difference."""
    loop = _Loop(recording)
    identical = 0
    for number, line in recording.lines[1:]:
        difference = loop.take(number, line)
        if difference is not None:
            left = sum(line["dir"] in {"out", "coord"} for _, line in recording.lines) - identical
            return MemberVerdict(identical, max(left, 1), difference)
        identical += line["dir"] in {"out", "coord"}
    return MemberVerdict(identical, 0, loop.rest())


@dataclass(slots=True)
class _Member:
    """One of our members, what it has done that the recording has not come to, and what it has sent."""

    running: RunningMember
    waiting: list[tuple[int, Line]] = field(default_factory=list)
    sent: dict[int, Line] = field(default_factory=dict)

    def note(self, number: int, outputs: Iterable[Line]) -> None:
        """Takes note of what the member does from a line on."""
        for output in outputs:
            self.waiting.append((number, output))
            if output["type"] == "request":
                self.sent[output["req"]] = output


class _Loop:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._recorded: Mapping[str, MemberRecording] = {member.name: member for member in recording.members}
        ids = member_ids(recording)
        failovers = find_failovers(recording, ids)
        self._coordinator = RecordedCoordinator(recording.lines[0][1], failovers, ids)
        self._answers = recorded_answers(recording)
        self._members: dict[str, _Member] = {}
        self._thread = OneThread()

    def take(self, number: int, line: Line) -> Difference | None:
        """Lets a line happen; returns how it differs from what we do, if it does."""
        try:
            for member in self._members.values():
                if member.running.is_waiting:
                    member.note(number, member.running.until(line["ts"]))
            if line["type"] == "topics":
                self._coordinator.advance(number, line["ts"])
                self._coordinator.set_topics(line)
                return None
            if line["dir"] == "out":
                return self._compare(number, line)
            if line["dir"] == "coord":
                return self._reach(number, line)
            return self._happen(number, line)
        except Exception as error:  # noqa: BLE001  a member or shard that breaks is a difference like any other
            return Difference(line.get("m", ""), number, line, None, f"{type(error).__name__}: {error}")

    def rest(self) -> Difference | None:
        """Returns the first thing that our members did beyond the recording."""
        over = [(member.waiting[0], name) for name, member in self._members.items() if member.waiting]
        if not over:
            return None
        (number, line), name = min(over, key=lambda one: one[0][0])
        return Difference(name, number, None, line)

    def _happen(self, number: int, line: Line) -> Difference | None:
        name = line["m"]
        if line["type"] == "start":
            machine = make_machine(self._recorded[name], self._recording.backoff_factor)
            self._members[name] = _Member(RunningMember(name, machine, self._thread))
        member = self._members[name]
        if member.waiting:
            return Difference(name, number, None, member.waiting[0][1])
        if line["type"] == "response" and line["api"] != _FIND_COORDINATOR:
            given = self._coordinator.answer_to((name, line["req"]))
            if given is None:
                return Difference(name, number, line, None)
            line = {**line, "body": given.body}
        member.note(number, member.running.take(line))
        return None

    def _compare(self, number: int, line: Line) -> Difference | None:
        member = self._members[line["m"]]
        if not member.waiting:
            # A call of its application ends at a time of its own.
            member.note(number, member.running.until(line["ts"]))
        ours = member.waiting.pop(0)[1] if member.waiting else None
        if ours is None or canonical(ours) != canonical(line):
            return Difference(line["m"], number, line, ours)
        return None

    def _reach(self, number: int, line: Line) -> Difference | None:
        """Lets a request reach the coordinator, or looks whether it has answered one just now."""
        key: RequestKey = line["m"], line["req"]
        sent = self._members[key[0]].sent.get(key[1])
        if sent is None:
            return Difference(key[0], number, line, None)
        if sent["api"] == _FIND_COORDINATOR:
            return None
        self._coordinator.advance(number, line["ts"])
        if line["type"] == "request":
            self._coordinator.request(line["ts"], key, sent)
            return None
        body = self._answers.get(key)
        if body is None or is_answered(self._coordinator, key, line["ts"], sent["api"], body):
            return None
        given = self._coordinator.answer_to(key)
        ours = None if given is None else {**line, "ts": given.ts_ms, "body": given.body}
        return Difference(key[0], number, {**line, "body": body}, ours)
