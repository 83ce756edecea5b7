"""What is planned to happen in a world, as data."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from coordinator_udf.members.inputs import Input
from coordinator_udf.members.outputs import Request
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.simulation.network import Connection
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan


class Start(msgspec.Struct, frozen=True):
    """A member's process starts."""

    plan: MemberPlan


class RequestArrives(msgspec.Struct, frozen=True):
    """A request arrives at its broker."""

    connection: Connection
    request: Request


class AnswerArrives(msgspec.Struct, frozen=True):
    """An answer arrives at its member."""

    connection: Connection
    request: Request
    body: Mapping[str, Any]


class NextRequest(msgspec.Struct, frozen=True):
    """A broker looks for the next request of a connection."""

    connection: Connection


class TimesOut(msgspec.Struct, frozen=True):
    """A member has waited as long as it does for an answer."""

    connection: Connection
    req: int


class Lost(msgspec.Struct, frozen=True):
    """A connection is lost."""

    connection: Connection


class MetadataArrives(msgspec.Struct, frozen=True):
    """A member learns what the cluster looks like, mostly because it has asked."""

    member: str
    is_asked: bool = True


class AsksAgain(msgspec.Struct, frozen=True):
    """A member asks again what the cluster looks like: its last questions, so many, got lost."""

    member: str
    failed: int


class Batch(msgspec.Struct, frozen=True):
    """A micro-batch ends: the coordinator hands out what it has decided since the last one."""


class TopicGrows(msgspec.Struct, frozen=True):
    """A topic appears, or has more partitions, or (none) is deleted; its ``id`` is made of its name if none is said."""

    name: str
    partitions: int
    id: str | None = None


class TopicsAre(msgspec.Struct, frozen=True):
    """These are all topics from now on."""

    topics: tuple[Topic, ...]


class GoesDown(msgspec.Struct, frozen=True):
    """A shard goes away, for a while or (None) until something brings it back, on a broker as `ComesBack`'s."""

    down_ms: int | None
    node: int | None = None
    shard: int = 0


class ComesBack(msgspec.Struct, frozen=True):
    """A shard is loaded on a broker, on the one after its last if none is said."""

    node: int | None = None
    shard: int = 0


class Pauses(msgspec.Struct, frozen=True):
    """A shard stands still for a while."""

    length_ms: int
    shard: int = 0


class PauseOver(msgspec.Struct, frozen=True):
    """A shard goes on that stood still."""

    shard: int


class ConnectionBreaks(msgspec.Struct, frozen=True):
    """The connection of a member to a node is lost."""

    member: str
    node: str


class IsRefused(msgspec.Struct, frozen=True):
    """All connections of a member are lost, and no broker takes another one."""

    member: str


class Calls(msgspec.Struct, frozen=True):
    """An application makes a call on its member, or returns from a callback."""

    member: str
    call: Input


class PlansCallback(msgspec.Struct, frozen=True):
    """An application plans when its next callback of a kind returns, or what it throws: a call of its says so then."""

    member: str
    method: str


class Looks(msgspec.Struct, frozen=True):
    """A member sees what is due by now, before what comes after this in the millisecond."""

    member: str


class Polls(msgspec.Struct, frozen=True):
    """An application polls by itself, if it is still to do so at this time."""

    member: str


class Stalls(msgspec.Struct, frozen=True):
    """An application stops polling for a while."""

    member: str
    length_ms: int


class Resumes(msgspec.Struct, frozen=True):
    """An application polls again."""

    member: str


class CallbackOver(msgspec.Struct, frozen=True):
    """A rebalance callback returns."""

    member: str
    method: str


class Resubscribes(msgspec.Struct, frozen=True):
    """An application subscribes to other topics."""

    member: str
    topics: tuple[str, ...]


class Rejoins(msgspec.Struct, frozen=True):
    """A member joins again of its own accord, if it hasn't since a time."""

    member: str
    since_ms: int


class Closes(msgspec.Struct, frozen=True):
    """An application closes its consumer."""

    member: str


class IsRemoved(msgspec.Struct, frozen=True):
    """An administrator removes a member."""

    member: str


class Crashes(msgspec.Struct, frozen=True):
    """A process is killed."""

    member: str


Event = (
    Start
    | RequestArrives
    | AnswerArrives
    | NextRequest
    | TimesOut
    | Lost
    | MetadataArrives
    | AsksAgain
    | Batch
    | TopicGrows
    | TopicsAre
    | ConnectionBreaks
    | IsRefused
    | Calls
    | PlansCallback
    | Looks
    | GoesDown
    | ComesBack
    | Pauses
    | PauseOver
    | Polls
    | Stalls
    | Resumes
    | CallbackOver
    | Resubscribes
    | Rejoins
    | Closes
    | IsRemoved
    | Crashes
)


def planned(plan: WorldPlan) -> Iterator[tuple[int, Event]]:
    """Yields what a plan says will happen, with its time in milliseconds from the start."""
    for topic in plan.topics:
        if topic.at_ms > 0:
            yield topic.at_ms, TopicGrows(topic.name, topic.partitions, topic.id)
    for failover in plan.failovers:
        yield failover.at_ms, GoesDown(failover.down_ms, failover.node, failover.shard)
    for pause in plan.pauses:
        yield pause.at_ms, Pauses(pause.length_ms, pause.shard)
    for removal in plan.removals:
        yield removal.at_ms, IsRemoved(removal.process)
    for member in plan.members:
        yield member.start_ms, Start(member)
        for stall in member.stalls:
            yield stall.at_ms, Stalls(member.name, stall.length_ms)
        for refusal in member.refusals:
            yield refusal.at_ms, IsRefused(member.name)
        for at_ms, topics in member.resubscribes:
            yield at_ms, Resubscribes(member.name, topics)
        for at_ms in member.learns_ms:
            yield at_ms, MetadataArrives(member.name, is_asked=False)
        for since_ms, at_ms in member.rejoins:
            yield at_ms, Rejoins(member.name, plan.start_ms + since_ms)
        if member.close_at_ms is not None:
            yield member.close_at_ms, Closes(member.name)
        if member.crash_at_ms is not None:
            yield member.crash_at_ms, Crashes(member.name)


def process_of(event: Event) -> str | None:
    """Returns the process that an event concerns; None if it concerns all."""
    if isinstance(event, Start):
        return event.plan.name
    connection = getattr(event, "connection", None)
    name: str | None = getattr(event, "member", None) if connection is None else connection.member
    return name


def member_of(event: Event) -> str | None:
    """Returns the process that an event happens in, which waits for it to go on if it hangs; None if in none."""
    match event:
        case AnswerArrives(connection) | TimesOut(connection) | Lost(connection):
            return connection.member
        case (
            MetadataArrives(name)
            | AsksAgain(name)
            | ConnectionBreaks(name)
            | Polls(name)
            | Stalls(name)
            | Resumes(name)
        ):
            return name
        case CallbackOver(name) | Resubscribes(name) | Rejoins(name) | Closes(name) | IsRefused(name):
            return name
        case _:
            return None


def topic_id(name: str) -> str:
    """Returns a topic's id in Kafka's url-safe base64: the same for a name in every world."""
    return base64.urlsafe_b64encode(hashlib.md5(name.encode(), usedforsecurity=False).digest()).decode().rstrip("=")
