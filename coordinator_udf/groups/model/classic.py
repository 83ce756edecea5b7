"""A classic group: its members, its votes, its leader. Data and what can be said of it; no decisions.

Source: Kafka's ClassicGroup and ClassicGroupMember. A group's structs are its encoded state too: field order is
format (see shard.state_row.codec.STATE_VERSION).
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from coordinator_udf.groups.model.classic_states import CAN_REBALANCE, DEAD, EMPTY, STABLE, ClassicGroupState
from coordinator_udf.java_order.tables import INITIAL_TABLE, grown_table, hash_order
from coordinator_udf.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    MalformedConsumerProtocol,
    decode_subscription_topics,
)
from coordinator_udf.protocol.errors import ApiError, Errors

Protocols = tuple[tuple[str, bytes], ...]


class Parked(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request that waits for its answer, with what a replay knows of that answer."""

    request_id: str | None
    api_version: int
    recorded_leader: str | None = None
    recorded_protocol: str | None = None


class AssignmentRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a member's assignment lies; its bytes too where the group may become a consumer group.

    It is the GroupMetadata record that the leader's SyncGroup wrote (or that was loaded), and the id that the member
    had there: a static member that came back has another now. Records of the same generation as a group's newest one
    are therefore never compacted away.
    """

    record_offset: int
    assigned_as: str
    size: int
    #: The bytes themselves, of a group of consumers that may become a consumer group: then somebody has to read them.
    data: bytes | None = None


class ResyncMode(IntEnum):
    """How an assignment replaces the one before in the same generation (an extension; the values are on the wire)."""

    #: It doesn't: all members have theirs.
    NONE = 0
    #: Nobody is given what another member may still own, so each is told as soon as it asks.
    ADDS = 1
    #: Partitions change hands: nobody is told before all own nothing.
    MOVES = 2


class SyncFailure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the leader said of why it can't compute an assignment (an extension)."""

    error_code: int
    reason: str | None = None


class Member(msgspec.Struct, array_like=True, gc=False):
    """A member of a classic group. Timeouts in milliseconds."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: AssignmentRef | None = None
    awaiting_join: Parked | None = None
    awaiting_sync: Parked | None = None
    is_new: bool = False
    #: Whether its JoinGroup said that it understands the extensions, and they are served.
    client_extensions: bool = False

    def metadata(self, protocol_name: str | None) -> bytes:
        """Returns the member's metadata for a protocol.

        Raises:
            ValueError: the member doesn't support it.
        """
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise ValueError(f"member {self.member_id} does not support protocol {protocol_name}")

    def has_satisfied_heartbeat(self) -> bool:
        """Returns whether a session that runs out now is no failure: the member waits for us.

        New members are not spared.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)


class ClassicGroup(msgspec.Struct, array_like=True, tag="classic"):
    """A classic group. ``state_timestamp`` in milliseconds; None is unknown, as in records of old versions."""

    group_id: str
    state: ClassicGroupState = EMPTY
    previous_state: ClassicGroupState = DEAD
    state_timestamp: int | None = None
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, Member] = {}
    #: Group instance id -> member id.
    static_members: dict[str, str] = {}
    #: Ids given out with MEMBER_ID_REQUIRED and not used yet. A dict for its order; the values mean nothing.
    pending_join: dict[str, int] = {}
    pending_sync: dict[str, int] = {}
    #: Protocol name -> number of members that support it.
    supported: dict[str, int] = {}
    awaiting_join_count: int = 0
    #: None: not known, for the group isn't of type "consumer" or a subscription can't be read.
    subscribed_topics: tuple[str, ...] | None = None
    new_member_added: bool = False
    #: The end of the shard's log when the group came to be: readers of what is committed see it once the log is longer.
    created_at: int = -1
    #: The size of the members' Java table, for its order.
    table: int = INITIAL_TABLE
    #: How often the leader has replaced the generation's assignment, and how it does while `pending_sync` names members
    #: that don't have the last one yet.
    resync_epoch: int = 0
    resync: ResyncMode = ResyncMode.NONE
    #: Set from when the leader could compute no assignment of the generation until the next rebalance.
    sync_failure: SyncFailure | None = None

    # -- questions ------------------------------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Returns whether the group is in the state Empty."""
        return self.state is EMPTY

    def can_rebalance(self) -> bool:
        """Returns whether a rebalance may begin in the state that the group is in."""
        return self.state in CAN_REBALANCE

    def in_order(self) -> list[Member]:
        """Returns the members in the order in which Kafka's coordinator walks them."""
        return [self.members[member_id] for member_id in hash_order(self.members, self.table)]

    def has_all_members_joined(self) -> bool:
        """Returns whether every member waits in the join phase and nobody is about to come."""
        return len(self.members) == self.awaiting_join_count and not self.pending_join

    def understands_extensions(self) -> bool:
        """Returns whether all members understand a new assignment without a new join round."""
        return all(member.client_extensions for member in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        """Returns the greatest of the members' rebalance timeouts."""
        return max([member.rebalance_timeout_ms for member in self.members.values()], default=0)

    def supports_protocols(self, protocol_type: str, protocols: Protocols) -> bool:
        """Returns whether somebody with these protocols could be a member: one of them is supported by all members."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        supported, everybody = self.supported, len(self.members)
        for name, _ in protocols:  # noqa: SIM110 - a generator costs as much as all the rest, every JoinGroup comes here
            if supported.get(name, 0) == everybody:
                return True
        return False

    def uses_consumer_protocol(self) -> bool:
        """Returns whether the members speak the consumers' own protocol."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns whether a member is subscribed.

        A group of consumers whose topics aren't known counts as subscribed.
        """
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol()
        return topic in self.subscribed_topics

    def may_expire_offsets(self) -> bool:
        """Returns whether offsets of topics to which nobody is subscribed may go."""
        if self.protocol_type is None or self.is_empty():
            return True
        stable = self.state is STABLE
        return stable and self.uses_consumer_protocol() and self.subscribed_topics is not None

    def offset_age_since(self, commit_timestamp_ms: int) -> int:
        """Returns the time from which the retention of an offset counts: where there was a membership, its end."""
        if self.protocol_type is not None and self.is_empty() and self.state_timestamp is not None:
            return self.state_timestamp
        return commit_timestamp_ms

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Checks that the member is there, and is the one that owns the instance id.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
        """
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                raise ApiError(Errors.UNKNOWN_MEMBER_ID)
            if owner != member_id:
                raise ApiError(Errors.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise ApiError(Errors.UNKNOWN_MEMBER_ID)

    def select_protocol(self, recorded: str | None = None) -> str:
        """Returns the protocol that most members prefer among those that all support; a tie goes as in Kafka.

        Args:
            recorded: in a replay, the original coordinator's choice; adopted where the votes allow it.
        """
        votes: dict[str, int] = {}
        candidates = {name for name, count in self.supported.items() if count == len(self.members)}
        if len(candidates) == 1:
            return candidates.pop()
        for member in self.in_order():
            name = next((name for name, _ in member.protocols if name in candidates), None)
            if name is None:
                raise ValueError(f"member {member.member_id} does not support any of the candidate protocols")
            votes[name] = votes.get(name, 0) + 1
        most = max(votes.values())
        tied = [name for name in hash_order(votes, grown_table(INITIAL_TABLE, len(votes))) if votes[name] == most]
        return recorded if recorded in tied else tied[0]

    def compute_subscribed_topics(self) -> tuple[str, ...] | None:
        """Returns the topics that members of a group of consumers subscribe to; None where that can't be known."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return ()
        if self.protocol_name is None:
            return None
        # Most members say the same.
        subscriptions = dict.fromkeys([member.metadata(self.protocol_name) for member in self.members.values()])
        try:
            topics = [topic for data in subscriptions for topic in decode_subscription_topics(data)]
        except MalformedConsumerProtocol:
            return None
        return tuple(dict.fromkeys(topics))

    # -- membership -----------------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        """Adds a member that isn't there yet."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.table = grown_table(self.table, len(self.members))
        self._count(member.protocols, 1)
        if member.awaiting_join is not None:
            self.awaiting_join_count += 1
        self.pending_join.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Removes a member or a pending id; another member takes the lead if it led."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.awaiting_join is not None:
                self.awaiting_join_count -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(hash_order(self.members, self.table)), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def update(
        self,
        member: Member,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        parked: Parked | None,
    ) -> None:
        """Takes over a rejoining member's protocols and timeouts; it waits, unless ``parked`` is None."""
        if member.protocols != protocols:
            self._count(member.protocols, -1)
            member.protocols = protocols
            self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.awaiting_join_count += (parked is not None) - (member.awaiting_join is not None)
        member.awaiting_join = parked

    def rename_static(self, group_instance_id: str, old_id: str, new_id: str) -> Member:
        """Gives a static member a new member id; it keeps all else, and nobody waits under the old id any more."""
        old = self.members.pop(old_id)
        if old.awaiting_join is not None:
            self.awaiting_join_count -= 1
        member = Member(
            member_id=new_id,
            group_instance_id=old.group_instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
            client_extensions=old.client_extensions,
        )
        self.members[new_id] = member
        self.table = grown_table(self.table, len(self.members))
        if self.leader == old_id:
            self.leader = new_id
        self.static_members[group_instance_id] = new_id
        return member

    def elect_joined_leader(self, recorded: str | None) -> bool:
        """Makes sure that the leader is a member that has joined; whether there is one.

        Args:
            recorded: in a replay, the original coordinator's choice; adopted if that member has joined.
        """
        if self.leader is None:
            return False
        if recorded is not None and recorded in self.members and self.members[recorded].awaiting_join is not None:
            self.leader = recorded
            return True
        if self.members[self.leader].awaiting_join is not None:
            return True
        for member in self.in_order():
            if member.awaiting_join is not None:
                self.leader = member.member_id
                return True
        return False

    def _count(self, protocols: Protocols, by: int) -> None:
        for name, _ in protocols:
            count = self.supported.get(name, 0) + by
            if count > 0:
                self.supported[name] = count
            else:
                self.supported.pop(name, None)
