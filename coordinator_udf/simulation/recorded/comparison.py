"""Runs a recorded loop in a world and compares what happened, event by event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

from coordinator_udf.members import inputs
from coordinator_udf.members.outputs import Output, Request
from coordinator_udf.replay.members.canonical import canonical, canonical_answer
from coordinator_udf.replay.members.failovers import recorded_answers, recorded_requests
from coordinator_udf.replay.members.lines import line_of
from coordinator_udf.replay.members.member_ids import member_ids
from coordinator_udf.replay.members.recorded_coordinator import RequestKey
from coordinator_udf.replay.members.recording import Line, RecordedMembers, read_recording
from coordinator_udf.replay.members.run import MemberDifference, MemberVerdict
from coordinator_udf.replay.members.summary import RecordingVerdict
from coordinator_udf.simulation.coordinator import Answered
from coordinator_udf.simulation.network import Connection
from coordinator_udf.simulation.process import Process
from coordinator_udf.simulation.process_names import client_and_run
from coordinator_udf.simulation.recorded.script import plan_of, script_of
from coordinator_udf.simulation.recorded.world import RecordedWorld

#: So many ids are tried for who got one that nobody saw: that it comes first of a group of six, in the order of a hash
#: map, as who leads does, none of them makes true once in 18 times.
_DRAWS = 16

#: Whose lines these are: a member's, or the coordinator's about a member. The coordinator answers several members at
#: once in the order of a hash map, so they are compared member by member.
_Whose = tuple[str, str]


class _Trace:
    """What happens in a world, in the lines of a recording."""

    def __init__(self) -> None:
        self.lines: dict[_Whose, list[Line]] = defaultdict(list)

    def got(self, process: Process, now_ms: int, event: inputs.Input) -> None:
        """Writes what a member gets."""
        told: Line
        match event:
            case inputs.Response(req, body):
                told = {"type": "response", "req": req, "body": body}
            case inputs.Disconnect(node):
                told = {"type": "disconnect", "node": node}
            case inputs.Metadata(view):
                told = {"type": "metadata", "view": view}
            case _:
                return
        self._write({"dir": "in", "ts": now_ms, "m": process.plan.client_id, **told})

    def did(self, process: Process, now_ms: int, output: Output) -> None:
        """Writes what a member does."""
        self._write(line_of(output, process.plan.client_id, now_ms))

    def reached(self, connection: Connection, request: Request, now_ms: int) -> None:
        """Writes that a request reaches its broker."""
        told = {"dir": "coord", "type": "request", "ts": now_ms, "m": client_and_run(connection.member)[0]}
        self._write({**told, "req": request.req})

    def answered(self, answer: Answered) -> None:
        """Writes an answer."""
        name, _ = client_and_run(answer.connection.member)
        told = {"dir": "coord", "type": "response", "ts": answer.ts_ms, "m": name}
        self._write({**told, "req": answer.request.req, "body": answer.body})

    def _write(self, line: Line) -> None:
        self.lines[_whose(line)].append(line)


def _whose(line: Line) -> _Whose:
    return line["m"], "coordinator" if line["dir"] == "coord" else "member"


def judge_in_world(path: Path) -> RecordingVerdict | None:
    """Runs a recorded loop in a world; None if Kafka's coordinator wasn't in it.

    Raises:
        InputError: the file is no recording of members.
    """
    recording = read_recording(path)
    if not recording.is_closed_loop:
        return None
    verdict = run_in_world(recording)
    return RecordingVerdict(
        path, recording.family, verdict.identical, verdict.different, verdict.difference, is_closed=True
    )


def run_in_world(recording: RecordedMembers) -> MemberVerdict:
    """Runs a recorded loop in a world of its own; returns how much of it came out the same, and what first didn't.

    Where the coordinator drew ids that nobody saw, of some that it may have drawn those count with which most is the
    same.
    """
    ids = member_ids(recording)
    best = _run(recording, ids)
    for draw in range(1, _DRAWS):
        others = member_ids(recording, draw)
        if best.difference is None or others == ids:
            break
        best = min(best, _run(recording, others), key=lambda verdict: verdict.different)
    return best


def _run(recording: RecordedMembers, ids: Mapping[RequestKey, str]) -> MemberVerdict:
    trace = _Trace()
    failure: str | None = None
    try:
        RecordedWorld(plan_of(recording), script_of(recording, ids), trace).run()
    except Exception as error:  # noqa: BLE001  a world that breaks is a difference like any other
        failure = f"{type(error).__name__}: {error}"
    differences: list[MemberDifference] = []
    identical = 0
    expected = _expected(recording)
    comparable = _Comparable(recording)
    for whose in sorted(expected.keys() | trace.lines.keys()):
        number = 0
        for wanted, found in zip_longest(expected[whose], trace.lines[whose]):
            if wanted is not None:
                number = wanted[0]
            if wanted is None or found is None or comparable.of(wanted[1]) != comparable.of(found):
                line = None if wanted is None else wanted[1]
                differences.append(MemberDifference(whose[0], number, line, found, failure))
                break
            identical += 1
    if failure is not None and not differences:
        # It broke after all that was recorded had happened.
        number, line = recording.lines[-1]
        differences.append(MemberDifference(line.get("m", ""), number, None, None, failure))
    first = min(differences, key=lambda difference: difference.line, default=None)
    total = sum(len(lines) for lines in expected.values())
    return MemberVerdict(identical, max(total - identical, 0 if first is None else 1), first)


def _expected(recording: RecordedMembers) -> dict[_Whose, list[tuple[int, Line]]]:
    """Returns the lines that a world has to come to, with their numbers: each member's, and the coordinator's."""
    lines: dict[_Whose, list[tuple[int, Line]]] = defaultdict(list)
    for number, line in recording.lines:
        if line["dir"] == "coord":
            if not line.get("never"):
                lines[_whose(line)].append((number, line))
        elif line["dir"] == "out" or line["type"] in {"response", "disconnect", "metadata"}:
            lines[_whose(line)].append((number, line))
    return lines


class _Comparable:
    """Writes lines in the form in which they are compared."""

    def __init__(self, recording: RecordedMembers) -> None:
        self._apis = {key: line["api"] for key, line in recorded_requests(recording).items()}
        self._answers = recorded_answers(recording)

    def of(self, line: Line) -> Line:
        """Returns what is compared of a line."""
        if line["dir"] == "out":
            return canonical(line)
        kept = {name: line[name] for name in ("dir", "type", "ts")}
        if line["type"] == "disconnect":
            return {**kept, "node": line["node"]}
        if line["type"] == "metadata":
            return kept
        key: RequestKey = line["m"], line["req"]
        kept |= {"key": key}
        if line["type"] == "response" and key in self._answers:
            body = line.get("body") or self._answers[key]
            kept["body"] = canonical_answer(self._apis.get(key, ""), body)
        return kept
