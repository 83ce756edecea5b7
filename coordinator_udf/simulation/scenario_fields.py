"""The fields of a scenario file, and which of them each kind of fault has."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from coordinator_udf.simulation.plan import Habit

#: A week: sessions, deploys and retries are over in minutes, and what is settled repeats itself.
LONGEST_S = 7 * 24 * 3600
#: Of a world, also those that faults add. A hundred times the largest world that is shipped, of a thousand members.
MOST_MEMBERS = 100_000
#: Of a world's coordinator: twenty times the partitions of Kafka's offsets topic. A world looks at all of them at each
#: step: a small one of a thousand takes four times as long as one of one.
MOST_SHARDS = 1_000
#: Of a topic. Half as many as a whole cluster of Kafka's had before KRaft.
MOST_PARTITIONS = 100_000
#: Of records a second in a partition: offsets of a world that lasts longest are far from 2**63 then.
MOST_RECORDS_S = 1_000_000_000

Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]
#: A time, or a range out of which each world draws one.
Span = Seconds | Annotated[tuple[Seconds, ...], Meta(min_length=2, max_length=2)]
#: Of members, or of what happens to them.
Count = Annotated[int, Meta(ge=1, le=MOST_MEMBERS)]
Partitions = Annotated[int, Meta(ge=1, le=MOST_PARTITIONS)]
Milliseconds = Annotated[int, Meta(ge=0, le=LONGEST_S * 1000)]
Kind = Literal[
    "deploy", "crash", "stall", "hang", "cut", "slow", "restart", "migrate", "scale", "subscribe", "remove", "failover",
    "pause", "grow", "delete",
]  # fmt: skip


class TopicFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic of a scenario, there from ``at_s`` on, with so many records a second in each partition."""

    name: Annotated[str, Meta(min_length=1)]
    partitions: Partitions
    records_s: Annotated[float, Meta(ge=0, le=MOST_RECORDS_S)] = 2.0
    at_s: Span = 0.0


class MembersFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some members that are set up alike, with client ids ``<name>1``, ``<name>2`` and so on.

    Attributes:
        name: by default ``c``, and ``c2-``, ``c3-`` and so on for the next ones without a name.
        topics: what they subscribe to; all topics, if none is said.
        pattern: what they subscribe to instead: the topics whose whole names match it, those that come later, too.
        poll_s: how long a poll lasts that brings nothing.
        process_s: how long the application works between two polls.
        callback_s: how long a rebalance callback takes.
        again_s: after how long a process is started again that ends because poll threw an exception; None: none does,
            the application polls on.
        habit: how they misbehave. Other faults don't happen to such members, and they are killed at ``until_s``, by
            default ``quiet_s`` before the world's end.
        every_s: how often they do what a member doesn't.
    """

    count: Count
    name: str = ""
    group: Annotated[str, Meta(min_length=1)] = "g"
    protocol: Literal["classic", "consumer"] = "classic"
    start_s: Span = 0.0
    static: bool = False
    topics: tuple[str, ...] = ()
    pattern: Annotated[str, Meta(min_length=1)] | None = None
    properties: dict[str, Any] = {}
    poll_s: Span = 0.2
    process_s: Span = 0.02
    callback_s: Span = 0.0
    again_s: Span | None = None
    habit: Habit | None = None
    every_s: Annotated[float, Meta(ge=0.001, le=LONGEST_S)] = 1.0
    until_s: Span | None = None


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that happens to members, topics or the coordinator.

    Attributes:
        kind: deploy and migrate take all members in turn, ``wave`` of them each ``every_s``; restart takes all at once;
            scale starts as many more members as ``count`` says, ``wave`` of them each ``every_s``.
        group: whose members it happens to, or who is scaled; those of all groups, if none is said.
        count: how many members it happens to, drawn from all of these; how often for a failover or a pause.
        back_s: how long until a crashed or deployed process is replaced, or a deleted topic made again; None: never.
        overlap_s: how long a process goes on beside the one that is deployed in its place; None: it goes first.
        length_s: how long a stall, a hang, a cut, a slow link, a failover or a pause lasts.
        by_s: how much longer messages take over a slow link.
        topics: what members subscribe to from then on.
        topic: which one grows or is deleted; the first one, if none is said.
        partitions: how many a topic grows to.
        shard: which one goes away or pauses; all at once, if none is said.
    """

    kind: Kind
    at_s: Span
    group: str = ""
    count: Count = 1
    every_s: Seconds = 1.0
    back_s: Span | None = None
    overlap_s: Span | None = None
    length_s: Span = 0.0
    by_s: Span = 0.0
    wave: Count = 1
    topics: tuple[str, ...] = ()
    topic: str = ""
    partitions: Partitions | None = None
    shard: Annotated[int, Meta(ge=0, lt=MOST_SHARDS)] | None = None


class NetworkFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long messages take, and the share of requests with which the connection is lost."""

    latency_ms: tuple[Milliseconds, Milliseconds] = (1, 5)
    loss: Annotated[float, Meta(ge=0, le=1)] = 0.0


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scenario file. A world goes on for ``quiet_s`` after its last fault, up to ``end_s`` at least."""

    title: str
    end_s: Seconds
    members: Annotated[tuple[MembersFields, ...], Meta(min_length=1)]
    topics: Annotated[tuple[TopicFields, ...], Meta(min_length=1)]
    quiet_s: Seconds = 60.0
    faults: tuple[Fault, ...] = ()
    network: NetworkFields = NetworkFields()
    coordinator: dict[str, Any] = {}
    cadence_ms: Milliseconds = 0
    shards: Annotated[int, Meta(ge=1, le=MOST_SHARDS)] = 1


#: The fields of each kind of fault beside ``kind`` and ``at_s``: those that it can't do without, and those that it can.
FIELDS_OF: dict[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "deploy": ((), ("back_s", "every_s", "group", "overlap_s", "wave")),
    "migrate": (("back_s",), ("every_s", "group", "wave")),
    "restart": ((), ("back_s", "group", "overlap_s")),
    "crash": ((), ("back_s", "count", "group")),
    "stall": (("length_s",), ("count", "group")),
    "hang": (("length_s",), ("count", "group")),
    "cut": (("length_s",), ("count", "group")),
    "slow": (("length_s", "by_s"), ("count", "group")),
    "scale": ((), ("count", "every_s", "group", "wave")),
    "subscribe": (("topics",), ("count", "group")),
    "remove": ((), ("count", "group")),
    "failover": ((), ("count", "length_s", "shard")),
    "pause": (("length_s",), ("count", "shard")),
    "grow": (("partitions",), ("topic",)),
    "delete": ((), ("back_s", "topic")),
}

#: The struct of the tables of each name in a scenario file.
TABLES: dict[str, type[msgspec.Struct]] = {
    "members": MembersFields,
    "topics": TopicFields,
    "faults": Fault,
    "network": NetworkFields,
}
#: The fields that are a `Span`, of each table that has any.
SPANS = {
    "topics": ("at_s",),
    "members": ("start_s", "poll_s", "process_s", "callback_s", "again_s", "until_s"),
    "faults": ("at_s", "back_s", "overlap_s", "length_s", "by_s"),
}


def family_names(scenario: Scenario) -> list[str]:
    """Returns the name of each table of members, those that are made up included."""
    names, unnamed = [], 0
    for family in scenario.members:
        unnamed += not family.name
        names.append(family.name or ("c" if unnamed == 1 else f"c{unnamed}-"))
    return names


def client_ids(scenario: Scenario) -> list[list[str]]:
    """Returns the client ids of each table of members."""
    families = zip(family_names(scenario), scenario.members, strict=True)
    return [[f"{name}{number}" for number in range(1, family.count + 1)] for name, family in families]
