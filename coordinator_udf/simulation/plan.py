"""What a world is made of and what happens in it, as data. Times are milliseconds from the world's start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coordinator_udf.members.config import MemberConfig
from coordinator_udf.simulation.process_names import process_name


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic, from a time on with so many partitions, or none: then it is deleted. The last one of a name counts.

    Attributes:
        records_s: how many records a second come to each of its partitions.
        id: its id in Kafka's url-safe base64; None: one made of its name. Assignors go through topics by their ids.
    """

    name: str
    partitions: int
    at_ms: int = 0
    records_s: float = 0.0
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """The application doesn't call poll for a while."""

    at_ms: int
    length_ms: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Nothing that a process sends arrives, and nothing that is sent to it, for a while."""

    at_ms: int
    length_ms: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """No broker lets a process connect for a while: its connections break, and what it sends goes out only then."""

    at_ms: int
    length_ms: int


@dataclass(frozen=True, slots=True)
class Hang:
    """A whole process stands still for a while, its threads and its timers, and then goes on where it was."""

    at_ms: int
    length_ms: int


@dataclass(frozen=True, slots=True)
class Slow:
    """Messages of a process take so much longer for a while, both ways."""

    at_ms: int
    length_ms: int
    by_ms: int


class Habit(StrEnum):
    """How a member misbehaves.

    deaf: it sends heartbeats, and doesn't hear in their answers that it is to join again, or of an assignment.
    never-syncs: it never sends SyncGroup, or (KIP-848) never says which partitions it has.
    repeats: it sends every request twice.
    forgetful: besides, it joins again and again as somebody else, and makes nothing of it.
    stranger: besides, it sends requests of members and generations that there never were.
    zombie: besides, it goes on to commit what it committed in generations that are over.
    """

    DEAF = "deaf"
    NEVER_SYNCS = "never-syncs"
    REPEATS = "repeats"
    FORGETFUL = "forgetful"
    STRANGER = "stranger"
    ZOMBIE = "zombie"


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """One process of a member.

    Attributes:
        client_id: stays when a process is replaced by another.
        run: counts the processes of a client id from 1.
        properties: Kafka's consumer properties.
        regex: what it subscribes to instead of topics, a pattern that the coordinator matches; a classic member itself.
        close_at_ms: when the application closes the consumer.
        crash_at_ms: when the process is killed.
        poll_ms: how long a call of poll lasts if nothing comes of it.
        process_ms: how long the application works between two calls.
        callback_ms: how long a rebalance callback takes.
        wakes_when_due: whether its poll wakes up when the next commit is due, too, and the next poll begins when the
            records of the last one are worked on, as with Java's KIP-848 consumer; else when a poll is over is drawn.
        again_ms: after how long the process is started again that ends because poll threw an exception, if no other has
            its place by then; None: whatever poll throws, the application polls on.
        lateness_ms: how late the member's own timers are, each drawn from these: its machine is busy, too.
        beats_ms: when heartbeats went out, where that is known: one that is due about then goes out then.
        acks_ms: those of them that said what it owns, and mostly went out for that, and not because they were due.
        looks_ms: when its application looked at what a thread behind it has for it, where that is known.
        sent_ms: requests (API) that answer to something, where it is known when that came and when they went.
        answered_late_ms: requests (API) that the coordinator takes long for: when they come, and how long.
        resubscribes: the topics that it wants from a time on.
        learns_ms: when it learned of the cluster, where it is known that it did so without having to.
        rejoins: when it joined again of its own accord, if it hadn't since a time that stands before it.
        member_ids: the ids that it has, one after the other; drawn where there are no more.
        shared_client_id: the client id that it sends, where others send the same; else it sends its own.
        habit: how it misbehaves, if it does.
        habit_every_ms: how often it then does what a member doesn't.
    """

    client_id: str
    run: int
    group_id: str
    topics: tuple[str, ...]
    start_ms: int
    properties: Mapping[str, Any] = field(default_factory=dict)
    regex: str | None = None
    close_at_ms: int | None = None
    crash_at_ms: int | None = None
    stalls: tuple[Stall, ...] = ()
    cuts: tuple[Cut, ...] = ()
    slow: tuple[Slow, ...] = ()
    hangs: tuple[Hang, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    poll_ms: int = 200
    process_ms: int = 20
    callback_ms: int = 0
    wakes_when_due: bool = False
    again_ms: int | None = None
    lateness_ms: tuple[int, ...] = (0,)
    beats_ms: tuple[int, ...] = ()
    acks_ms: tuple[int, ...] = ()
    looks_ms: tuple[int, ...] = ()
    sent_ms: tuple[tuple[str, int, int], ...] = ()
    answered_late_ms: tuple[tuple[str, int, int], ...] = ()
    resubscribes: tuple[tuple[int, tuple[str, ...]], ...] = ()
    learns_ms: tuple[int, ...] = ()
    rejoins: tuple[tuple[int, int], ...] = ()
    member_ids: tuple[str, ...] = ()
    shared_client_id: str | None = None
    habit: Habit | None = None
    habit_every_ms: int = 1_000

    @property
    def is_kip_848(self) -> bool:
        """Whether its member speaks the consumer protocol."""
        return self.properties.get("group.protocol") == "consumer"

    @property
    def matches_pattern(self) -> bool:
        """Whether its member itself matches topics with a pattern, for which its polls wait for metadata."""
        return self.regex is not None and not self.is_kip_848

    @property
    def is_always_heard(self) -> bool:
        """Whether nothing keeps what it sends, and what it is sent, from coming in time."""
        return not (self.cuts or self.slow or self.hangs or self.refusals)

    def config(self) -> MemberConfig:
        """Returns its properties with Kafka's defaults.

        Raises:
            BadRequest: a property has a value that it can't have.
        """
        return MemberConfig.parse({**self.properties, "group.id": self.group_id})

    @property
    def name(self) -> str:
        """The process's name, unique in its world."""
        return process_name(self.client_id, self.run)

    @property
    def sent_client_id(self) -> str:
        """The client id that it sends, with which the member ids begin that a classic coordinator gives it."""
        return self.client_id if self.shared_client_id is None else self.shared_client_id

    def slowed_by_ms(self, at_ms: int) -> int:
        """Returns how much longer a message of the process takes at a time."""
        if not self.slow:
            return 0
        return sum(one.by_ms for one in self.slow if one.at_ms <= at_ms < one.at_ms + one.length_ms)

    def cut_until_ms(self, at_ms: int) -> int:
        """Returns when the process is there again if it is cut off at a time; -1 if it is not."""
        return _end_ms(self.cuts, at_ms) if self.cuts else -1

    def refused_until_ms(self, at_ms: int) -> int:
        """Returns when the process can connect if it can't at a time; -1 if it can."""
        return _end_ms(self.refusals, at_ms) if self.refusals else -1

    def hangs_until_ms(self, at_ms: int) -> int:
        """Returns when the process goes on if it hangs at a time; -1 if it doesn't."""
        return _end_ms(self.hangs, at_ms) if self.hangs else -1


def _partitions(topics: Iterable[TopicPlan]) -> dict[str, int]:
    """Returns the partitions of topics as the last of each name has them, but for those that are deleted."""
    counts = {topic.name: topic.partitions for topic in topics}
    return {name: count for name, count in counts.items() if count}


def _end_ms(spans: Sequence[Cut | Hang | Refusal | Pause], at_ms: int) -> int:
    """Returns when the last of the spans ends that a time is in; -1 if it is in none."""
    return max(
        (one.at_ms + one.length_ms for one in spans if one.at_ms <= at_ms < one.at_ms + one.length_ms), default=-1
    )


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """How long a message takes from end to end, evenly drawn from a range, and how many connections get lost.

    Attributes:
        loss: the share of requests with which the connection is lost.
    """

    latency_ms: tuple[int, int] = (1, 1)
    loss: float = 0.0


@dataclass(frozen=True, slots=True)
class Failover:
    """A shard of the coordinator goes away and is loaded again after a while.

    Attributes:
        node: the broker on which it is then; by default the one after its last.
    """

    at_ms: int
    down_ms: int
    node: int | None = None
    shard: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """A shard of the coordinator stands still for a while: what comes to it waits, and its timers fire after it.

    Where the coordinator answers once in a while, that micro-batch, which is of all shards, ends when the pause does,
    at the earliest. A shard that is away doesn't pause.
    """

    at_ms: int
    length_ms: int
    shard: int = 0


@dataclass(frozen=True, slots=True)
class Removal:
    """An administrator removes the member of a process, by its name, from its group."""

    at_ms: int
    process: str


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """A world.

    Attributes:
        settings: the coordinator's, under Kafka's names.
        shards: how many it has, over which groups are spread as Kafka does it.
        sync_delays_ms: how long members take to send SyncGroup, each time drawn from these.
        assign_delays_ms: how long a leader takes for it, which computes the assignment first.
        first_sync_delays_ms, first_assign_delays_ms: the same, of a process that does it for the first time, if that
            is known: it has yet to load its code.
        rejoin_delays_ms: how long members take to send JoinGroup that have to join again.
        cadence_ms: the coordinator hands answers out once in so many milliseconds, though it handles requests, and lets
            timers fire, at their times; 0: each answer at once.
        end_ms: when the world ends.
        begin_ms: when its history begins: what was before brings it to where that is, and doesn't count.
        quiet_ms: so long after the last fault members are all stable at the latest; None: at the end, at the latest.
        fetches_fail: whether who has partitions of a topic that is deleted or made again hears of it by its fetches.
        keeps_requests: whether its history keeps the members' requests with their answers.
    """

    members: tuple[MemberPlan, ...]
    topics: tuple[TopicPlan, ...]
    end_ms: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    network: NetworkPlan = NetworkPlan()
    failovers: tuple[Failover, ...] = ()
    removals: tuple[Removal, ...] = ()
    sync_delays_ms: tuple[int, ...] = (0,)
    assign_delays_ms: tuple[int, ...] = (0,)
    first_sync_delays_ms: tuple[int, ...] = ()
    first_assign_delays_ms: tuple[int, ...] = ()
    rejoin_delays_ms: tuple[int, ...] = ()
    cadence_ms: int = 0
    quiet_ms: int | None = None
    fetches_fail: bool = False
    keeps_requests: bool = False
    begin_ms: int = 0
    start_ms: int = 1_700_000_000_000
    shards: int = 1
    pauses: tuple[Pause, ...] = ()

    @property
    def is_always_served(self) -> bool:
        """Whether the coordinator neither goes away nor stands still."""
        return not (self.failovers or self.pauses)

    @property
    def deletes_topics(self) -> bool:
        """Whether a topic is deleted."""
        return any(topic.partitions == 0 for topic in self.topics)

    def pauses_until_ms(self, at_ms: int) -> int:
        """Returns when the last shard goes on that stands still at a time; -1 if none does."""
        return _end_ms(self.pauses, at_ms) if self.pauses else -1

    def topics_changed_ms(self) -> list[int]:
        """Returns when topics come, grow or go after the world's start, in milliseconds since the epoch."""
        return [self.start_ms + topic.at_ms for topic in self.topics if topic.at_ms > 0]

    def last_fault_ms(self) -> int:
        """Returns when the last of what happens to members, topics and the coordinator is over.

        Who failed by then is started again after that.
        """
        moments = [topic.at_ms for topic in self.topics]
        moments += [failover.at_ms + failover.down_ms for failover in self.failovers]
        moments += [pause.at_ms + pause.length_ms for pause in self.pauses]
        moments += [removal.at_ms for removal in self.removals]
        for member in self.members:
            times = member.start_ms, member.close_at_ms, member.crash_at_ms
            moments += [time for time in times if time is not None]
            for spans in (member.stalls, member.hangs, member.cuts, member.refusals):
                moments += [one.at_ms + one.length_ms for one in spans]
            moments += [slow.at_ms + slow.length_ms + slow.by_ms for slow in member.slow]
            moments += [at_ms for at_ms, _ in member.resubscribes]
            moments += [at_ms for _, at_ms in member.rejoins]
        return max(moments, default=0) + max((member.again_ms or 0 for member in self.members), default=0)

    def partitions_at_end(self) -> dict[str, int]:
        """Returns how many partitions the topics have that there are at the end."""
        return _partitions(self.topics)

    def partitions_at(self, at_ms: int) -> dict[str, int]:
        """Returns how many partitions the topics have that there are at a time, in milliseconds from the start."""
        changes = (topic for topic in self.topics if topic.at_ms <= at_ms)
        return _partitions(sorted(changes, key=lambda one: one.at_ms))

    def topics_made_again(self) -> list[tuple[int, str]]:
        """Returns when which topics are made again that were deleted."""
        made_again = []
        partitions: dict[str, int] = {}
        for topic in sorted(self.topics, key=lambda one: one.at_ms):
            if topic.partitions and partitions.get(topic.name) == 0:
                made_again.append((topic.at_ms, topic.name))
            partitions[topic.name] = topic.partitions
        return made_again
