"""A consumer group (KIP-848): its members, their assignments, its epochs. Data and what can be said of it.

Every change of it is a record of the offsets topic (consumer_records), so that what readers of the log know is always
the whole of it. Source: Kafka's ModernGroup, ConsumerGroup and ConsumerGroupMember. The structs are the group's encoded
state too: field order is format (see shard.state_row.codec.STATE_VERSION).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum

import msgspec

from coordinator_udf.groups.model.client_assignment import ClientAssignor, Computation, InstalledAssignment
from coordinator_udf.java_order.tables import (
    INITIAL_TIMELINE_TABLE,
    grown_timeline_table,
    hash_order,
    table_for,
    timeline_order,
)
from coordinator_udf.java_order.walks import Assigned, Target
from coordinator_udf.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from coordinator_udf.protocol.errors import ApiError, Errors

#: A member's epoch while it is away for a while (static members), and once it has left.
LEFT_FOR_A_WHILE = -2
LEFT = -1


class ConsumerGroupState(StrEnum):
    """The states. The values are what ConsumerGroupDescribe and ListGroups say; nobody stores them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """How far a member has come towards its target assignment. The values are those of the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicMetadata(msgspec.Struct, frozen=True, array_like=True):
    """What a member has that uses the classic protocol. The session timeout is in milliseconds."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of a consumer group. ``rebalance_timeout_ms`` -1 is not known."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    #: A set: sorted, each once.
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str = ""
    server_assignor: str | None = None
    assigned: Assigned = {}
    pending_revocation: Assigned = {}
    #: None: the member uses the consumer protocol.
    classic: ClassicMetadata | None = None
    #: In the member's order of preference.
    client_assignors: tuple[ClientAssignor, ...] = ()
    #: The first group epochs with the member, and with its subscription; 0 where nobody needs to know.
    joined_epoch: int = 0
    subscribed_epoch: int = 0

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Returns whether the member has all that the target assignment of that epoch gives it, and nothing else."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def classic_protocols(self) -> tuple[tuple[str, bytes], ...]:
        """Returns the protocols of a member that uses the classic protocol; none of one that doesn't."""
        return () if self.classic is None else self.classic.protocols


class ResolvedRegex(msgspec.Struct, frozen=True, array_like=True):
    """The topics that a regular expression matches, sorted, as of a version of the topics and a time (ms)."""

    topics: tuple[str, ...]
    version: int
    timestamp: int


class ConsumerGroup(msgspec.Struct, array_like=True, tag="consumer"):
    """A consumer group. ``assignment_timestamp`` in milliseconds; 0 is unknown."""

    group_id: str
    group_epoch: int = 1
    metadata_hash: int = 0
    assignment_epoch: int = 1
    assignment_timestamp: int = 0
    members: dict[str, ConsumerMember] = {}
    #: Group instance id -> member id.
    static_members: dict[str, str] = {}
    #: Member id -> what it shall have.
    targets: dict[str, Target] = {}
    #: Topic id -> partition -> the epoch of the member that has it or still has to give it up.
    partition_epochs: dict[str, dict[int, int]] = {}
    resolved_regexes: dict[str, ResolvedRegex] = {}
    #: Assignor -> number of members that name it, in the order in which Kafka's table got them.
    assignors: dict[str, int] = {}
    #: Before this moment nobody looks whether the topics changed, for nothing was heard of it; not in any record.
    metadata_refresh_ms: int = 0
    #: Whether an old version's record of the topics is in the log and has to be removed from it.
    has_partition_metadata: bool = False
    #: As in `ClassicGroup`; a consumer group comes to be by a record.
    created_at: int = -1
    #: The size of the members' table in Kafka, for its order.
    table: int = INITIAL_TIMELINE_TABLE
    #: What ``resolved_regexes`` was when a member came, changed or went last; None if it is the same still.
    resolved_before: dict[str, ResolvedRegex] | None = None
    #: Who computes an assignment; None: nobody has to, or the coordinator does.
    computation: Computation | None = None
    #: How the targets came to be; None: the coordinator computed them.
    installed: InstalledAssignment | None = None
    #: Member id -> version and bytes of what the assignor that computed tells the member's.
    target_metadata: dict[str, tuple[int, bytes]] = {}

    # -- what a transition row has of any group -------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """The state, which follows from the epochs and the members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def generation_id(self) -> int:
        """The group epoch."""
        return self.group_epoch

    @property
    def protocol_type(self) -> str:
        """Always that of consumers."""
        return CONSUMER_PROTOCOL_TYPE

    @property
    def protocol_name(self) -> str | None:
        """The assignor of the members that computes or has computed; else the one that most members want."""
        return self.client_assignor() or self.preferred_assignor()

    @property
    def leader(self) -> str | None:
        """The member that computes the assignment or has computed it; None: the coordinator assigns."""
        if self.computation is not None:
            return self.computation.member_id or None
        return None if self.installed is None else self.installed.member_id

    # -- questions ------------------------------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Returns whether there are no members."""
        return not self.members

    def in_order(self) -> list[ConsumerMember]:
        """Returns the members in the order in which Kafka's coordinator walks them."""
        return [self.members[member_id] for member_id in timeline_order(self.members, self.table)]

    def member(self, member_id: str) -> ConsumerMember:
        """Returns a member.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID.
        """
        try:
            return self.members[member_id]
        except KeyError:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise ApiError(Errors.UNKNOWN_MEMBER_ID, message) from None

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Returns the member that has a group instance id; None if nobody has it."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.member(member_id)

    def target(self, member_id: str, instance_id: str | None = None) -> Target:
        """Returns what a member shall have; of a static member what whoever has its instance id shall have."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, "")
        return self.targets.get(member_id, {})

    def partition_epoch(self, topic_id: str, partition: int) -> int:
        """Returns the epoch of the member that holds a partition; -1 if nobody does."""
        return self.partition_epochs.get(topic_id, {}).get(partition, -1)

    def is_waiting_for_partitions(self, member: ConsumerMember) -> bool:
        """Returns whether somebody still holds a partition that the member shall have."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, {}) and self.partition_epoch(topic_id, partition) != -1
            for topic_id, partitions in self.targets.get(member.member_id, {}).items()
            for partition in partitions
        )

    def members_with(
        self, old: ConsumerMember | None = None, new: ConsumerMember | None = None
    ) -> Iterable[ConsumerMember]:
        """Yields the members as they will be once one of them is another; ``old`` may be one that joins just now."""
        seen = False
        for member in self.members.values():
            if old is not None and self._is_same(member, old):
                seen = True
                if new is not None:
                    yield new
            else:
                yield member
        if not seen and new is not None:
            yield new

    @staticmethod
    def _is_same(member: ConsumerMember, old: ConsumerMember) -> bool:
        if member.member_id == old.member_id:
            return True
        return old.instance_id is not None and member.instance_id == old.instance_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns whether a member is subscribed, by name or by a regular expression."""
        return topic in subscribed_topics(self.members.values(), self.resolved_regexes)

    def is_homogeneous(self) -> bool:
        """Returns whether all members want the same, as Kafka saw it when a member changed last."""
        resolved = self.resolved_regexes if self.resolved_before is None else self.resolved_before
        return is_homogeneous(self.members.values(), resolved)

    def classic_member_count(self) -> int:
        """Returns how many members use the classic protocol."""
        return sum(member.classic is not None for member in self.members.values())

    def supports_classic_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Returns whether somebody with these protocols could be a member: all classic members support one of them."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        if self.is_empty():
            return any(True for _ in names)
        supported = Counter(name for member in self.members.values() for name, _ in member.classic_protocols())
        count = self.classic_member_count()
        return any(supported[name] == count for name in names)

    def client_assignor(self) -> str | None:
        """Returns the assignor of the members that computes or has computed; None where the coordinator assigns."""
        by = self.computation or self.installed
        return None if by is None else by.assignor

    @property
    def assignment_error(self) -> int:
        """What the last computation by a member failed with; 0 if it didn't."""
        if self.computation is not None and self.computation.error:
            return self.computation.error
        return 0 if self.installed is None else self.installed.error

    def preferred_assignor(self) -> str | None:
        """Returns the assignor that most members name; None if nobody names one."""
        return _most_wanted(self.assignors, self._assignors_in_order())

    def wanted_assignor(self, old: ConsumerMember, new: ConsumerMember) -> str | None:
        """Returns the assignor that most members name once one of them has changed; a tie goes as in Kafka."""
        counts = {name: self.assignors[name] for name in self._assignors_in_order()}
        table = table_for(len(counts))
        _count_assignor(counts, old, new, first=True)
        return _most_wanted(counts, hash_order(counts, table))

    def _assignors_in_order(self) -> list[str]:
        return timeline_order(self.assignors, grown_timeline_table(INITIAL_TIMELINE_TABLE, len(self.assignors)))

    # -- offsets --------------------------------------------------------------------------------------------------

    def may_expire_offsets(self) -> bool:
        """Returns whether offsets of topics to which nobody is subscribed may go."""
        return True

    def offset_age_since(self, commit_timestamp_ms: int) -> int:
        """Returns the time from which the retention of an offset counts."""
        return commit_timestamp_ms

    # -- change ---------------------------------------------------------------------------------------------------

    def put(self, member: ConsumerMember) -> None:
        """Adds a member, or puts it in place of what it was."""
        self.resolved_before = None
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
        _count_assignor(self.assignors, old, member)
        # Kafka's table makes room for another one even where one is only replaced.
        self.table = grown_timeline_table(self.table, len(self.members) + 1)
        self.members[member.member_id] = member
        for partitions in (member.assigned, member.pending_revocation):
            self._hold(partitions, member.member_epoch)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def drop(self, member_id: str) -> None:
        """Removes a member."""
        self.resolved_before = None
        member = self.members.pop(member_id)
        self._release(member)
        _count_assignor(self.assignors, member, None)
        if member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Keeps what a regular expression matches; None: it is not wanted any more."""
        if self.resolved_before is None:
            self.resolved_before = dict(self.resolved_regexes)
        self.resolved_regexes.pop(regex, None)
        if resolved is not None:
            self.resolved_regexes[regex] = resolved

    def _hold(self, partitions: Assigned, epoch: int) -> None:
        for topic_id, epochs in partitions.items():
            self.partition_epochs.setdefault(topic_id, {}).update(dict.fromkeys(epochs, epoch))

    def _release(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, epochs in partitions.items():
                held = self.partition_epochs.get(topic_id)
                if held is None:
                    continue
                for partition in epochs:
                    if held.get(partition) == member.member_epoch:
                        del held[partition]
                if not held:
                    del self.partition_epochs[topic_id]


def regex_counts(members: Iterable[ConsumerMember]) -> Counter[str]:
    """Returns by regular expression how many members are subscribed to it."""
    return Counter(member.subscribed_topic_regex for member in members if member.subscribed_topic_regex)


def _count_assignor(
    counts: dict[str, int], old: ConsumerMember | None, new: ConsumerMember | None, *, first: bool = False
) -> None:
    """Counts what a member names now and no longer what it named before.

    Args:
        first: whether a name that wasn't there goes before all others, as HashMap.compute puts it, or behind.
    """
    before, after = (None if member is None else member.server_assignor for member in (old, new))
    if before in counts:
        counts[before] -= 1
        if not counts[before]:
            del counts[before]
    if after is None:
        return
    if after not in counts and first:
        others = dict(counts)
        counts.clear()
        counts[after] = 1
        counts.update(others)
    else:
        counts[after] = counts.get(after, 0) + 1


def _most_wanted(counts: Mapping[str, int], order: list[str]) -> str | None:
    return max(order, key=lambda name: counts[name], default=None)


def subscribed_topics(members: Iterable[ConsumerMember], resolved: Mapping[str, ResolvedRegex]) -> set[str]:
    """Returns every topic to which one of the members, or a regular expression that is kept, is subscribed."""
    topics = {topic for member in members for topic in member.subscribed_topic_names}
    return topics.union(*(regex.topics for regex in resolved.values()))


def is_homogeneous(members: Iterable[ConsumerMember], resolved: Mapping[str, ResolvedRegex]) -> bool:
    """Returns whether all members are subscribed to the same topics, as far as that can be told quickly."""
    known = list(members)
    by_name = Counter(topic for member in known for topic in member.subscribed_topic_names)
    by_regex = Counter(topic for regex in resolved.values() for topic in regex.topics)
    regexes = regex_counts(known)
    topics = by_name.keys() | by_regex.keys()
    if not regexes:
        return all(by_name[topic] == len(known) for topic in topics)
    if next(iter(regexes.values())) != len(known):
        return False
    return all(by_regex[topic] == 1 and not by_name[topic] for topic in topics)
