"""What a recorded loop tells of its applications and its network, as the plan of a world and what drives it.

From the recording come the applications' calls and when callbacks return, how long each message takes or that it gets
lost, which connections break, what the cluster looks like, and the random choices (ids, the factor of backoffs). When
the coordinator failed over is inferred from its answers. All that members and the coordinator do is the world's own.

Where several things happen in one millisecond their lines say in which order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from coordinator_udf.replay.members.failovers import find_failovers
from coordinator_udf.replay.members.lines import input_of
from coordinator_udf.replay.members.recorded_coordinator import RequestKey, coordinator_settings, topics_of
from coordinator_udf.replay.members.recording import Line, MemberRecording, RecordedMembers
from coordinator_udf.simulation import events as e
from coordinator_udf.simulation.network import Moment
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.process_names import process_name

_TIMEOUT = "timeout"

#: Just before what a line tells of.
_BEFORE = 0.5


@dataclass(frozen=True, slots=True)
class Script:
    """What happens to a world from outside, and how long its messages take.

    Attributes:
        members: what was recorded of each process, by its name.
        events: applications' calls, topics, failovers and breaking connections.
        there, back: when requests arrive, and their answers; what isn't in there never does.
        metadata: when members learn of the cluster, for each time that they ask.
        timeouts: the places at which members gave up a node's connection at a time.
        member_ids: the ids that the coordinator gives to members that join without.
    """

    members: Mapping[str, MemberRecording]
    events: tuple[tuple[Moment, e.Event], ...]
    there: Mapping[RequestKey, Moment]
    back: Mapping[RequestKey, Moment]
    metadata: Mapping[str, tuple[Moment, ...]]
    timeouts: Mapping[tuple[str, str, int], float]
    member_ids: Mapping[RequestKey, str]
    backoff_factor: float


def plan_of(recording: RecordedMembers) -> WorldPlan:
    """Returns the world in which a recording's members live; what happens in it is the script's."""
    config = recording.lines[0][1]
    last_ms = max(line["ts"] for _, line in recording.lines)
    return WorldPlan(
        members=(),
        topics=(),
        end_ms=last_ms - config["ts"],
        settings=coordinator_settings(config),
        start_ms=config["ts"],
    )


def script_of(recording: RecordedMembers, ids: Mapping[RequestKey, str]) -> Script:
    """Reads what happens to a recording's members from outside.

    Args:
        ids: those that the coordinator made, by the request.
    """
    there: dict[RequestKey, Moment] = {}
    back: dict[RequestKey, Moment] = {}
    metadata: dict[str, list[Moment]] = defaultdict(list)
    timeouts: dict[tuple[str, str, int], float] = {}
    for number, line in recording.lines[1:]:
        moment = Moment(line["ts"], number)
        if line["type"] == "request" and line["dir"] == "coord":
            there[process_name(line["m"], 1), line["req"]] = moment
        elif line["type"] == "response" and line["dir"] == "in":
            back[process_name(line["m"], 1), line["req"]] = moment
        elif line["type"] == "metadata":
            metadata[process_name(line["m"], 1)].append(moment)
        elif line["type"] == "disconnect" and line["reason"] == _TIMEOUT:
            timeouts[process_name(line["m"], 1), line["node"], line["ts"]] = number
    return Script(
        {process_name(member.name, 1): member for member in recording.members},
        (*_happenings(recording), *_failovers(recording, ids)),
        there,
        back,
        {name: tuple(moments) for name, moments in metadata.items()},
        timeouts,
        {(process_name(name, 1), req): member_id for (name, req), member_id in ids.items()},
        recording.backoff_factor,
    )


def _failovers(recording: RecordedMembers, ids: Mapping[RequestKey, str]) -> Iterator[tuple[Moment, e.Event]]:
    for failover in find_failovers(recording, ids):
        yield Moment(failover.gone_ms, failover.gone_before - _BEFORE), e.GoesDown(None)
        yield Moment(failover.back_ms, failover.back_before - _BEFORE), e.ComesBack(failover.node)


def _happenings(recording: RecordedMembers) -> Iterator[tuple[Moment, e.Event]]:
    """Yields what a recording's lines say that happens, but for messages that arrive."""
    for number, line in recording.lines:
        event = _event(line)
        if event is not None:
            yield Moment(line["ts"], number), event


def _event(line: Line) -> e.Event | None:
    if line["dir"] != "in":
        return None
    if line["type"] in {"config", "topics"}:
        return e.TopicsAre(tuple(topics_of(line)))
    name = process_name(line["m"], 1)
    match line["type"]:
        case "start":
            return e.Start(_member_plan(line))
        case "crash":
            return e.Crashes(name)
        case "tick":
            return e.Looks(name)
        case "disconnect":
            return None if line["reason"] == _TIMEOUT else e.ConnectionBreaks(name, line["node"])
        case "op" if line["op"] == "callback":
            return e.PlansCallback(name, line["method"])
        case "op" | "poll" | "callbackDone":
            return e.Calls(name, input_of(line))
        case _:
            return None


def _member_plan(line: Line) -> MemberPlan:
    config = line["config"]
    return MemberPlan(line["m"], 1, config["group.id"], (), 0, properties=config)
