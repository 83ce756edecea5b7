"""The groups of a shard, and how the records of the offsets topic change them: the one way for living and loading.

Source: GroupMetadataManager and OffsetMetadataManager, methods named replay.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any, NamedTuple

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic import AssignmentRef, ClassicGroup, Member, ResyncMode
from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent
from coordinator_udf.groups.model.consumer import ConsumerGroup
from coordinator_udf.groups.model.offsets import CommittedOffset, OffsetStore
from coordinator_udf.groups.model.timers import JOIN, SESSION, SYNC, TimerKey
from coordinator_udf.groups.records.classic import END_TXN_MARKER, GROUP_METADATA, OFFSET_COMMIT
from coordinator_udf.groups.records.consumer import (
    CONSUMER_RECORDS,
    CURRENT_ASSIGNMENT,
    GROUP_EPOCH,
    MEMBER,
    apply_record,
)
from coordinator_udf.offsets_topic.sizes import Sizes
from coordinator_udf.protocol.requests import ZERO_UUID

#: Every kind of group that there is. A shard, its timers, its records and its codec don't look inside.
Group = ClassicGroup | ConsumerGroup

#: What `SeenTwice` names, and the names that follow: group; group and member; group and topic; group, topic, partition.
SEEN_GROUP, SEEN_MEMBER, SEEN_TOPIC, SEEN_OFFSET = "group", "member", "topic", "offset"


class SeenTwice(NamedTuple):
    """What readers of the log are told twice, while it ends where it did when the write failed that changed it.

    Kafka's tables put back what they had at that end and keep it in the snapshot too, and a walk of a snapshot gives
    what stands in either (SnapshottableHashTable: executeRevert, HistoricalIterator).
    """

    end_offset: int = -1
    keys: frozenset[tuple[str, ...]] = frozenset()


class GroupStore:
    """Groups by id, and their offsets."""

    def __init__(self, groups: MutableMapping[str, Group] | None = None, offsets: OffsetStore | None = None) -> None:
        self.groups: MutableMapping[str, Group] = {} if groups is None else groups
        self.offsets = OffsetStore() if offsets is None else offsets
        #: Groups that ended without a record, with the log's end then: readers of the log know of them until it grows.
        self.unlogged_ends: dict[str, tuple[int, Group]] = {}
        self.seen_twice = SeenTwice()

    def get(self, group_id: str) -> Group | None:
        """Returns a group as the latest decision left it."""
        return self.groups.get(group_id)

    def classic(self, group_id: str) -> ClassicGroup | None:
        """Returns a group, if there is one and it is a classic group."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        """Returns a group, if there is one and it is a consumer group."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def committed(self, ctx: Context, group_id: str) -> Group | None:
        """Returns a group, if a reader of the log can know of it: something was logged since it came to be."""
        ended = self.unlogged_ends.get(group_id)
        if ended is not None and ended[0] == ctx.end_offset:
            return ended[1]
        group = self.groups.get(group_id)
        return group if group is not None and group.created_at < ctx.end_offset else None

    def vanish(self, ctx: Context, group_id: str) -> None:
        """Ends a group without a record."""
        self.unlogged_ends = {name: ended for name, ended in self.unlogged_ends.items() if ended[0] == ctx.end_offset}
        self.unlogged_ends[group_id] = (ctx.end_offset, self.groups.pop(group_id))

    def create(self, ctx: Context, group_id: str, created_at: int | None = None) -> ClassicGroup:
        """Makes an empty group that wasn't there.

        Args:
            created_at: the offset of the record that it comes to be by; None if there is none yet.
        """
        created_at = ctx.end_offset if created_at is None else created_at
        group = ClassicGroup(group_id=group_id, state_timestamp=ctx.now_ms, created_at=created_at)
        self.groups[group_id] = group
        ctx.note(group, None, GroupEvent.CREATED)
        return group

    def make_room(self, ctx: Context, records: Sequence[Sizes]) -> bool:
        """Returns whether the log takes an operation's records, which are applied next.

        Where Kafka goes back before it applies them, that is done here.
        """
        fits = ctx.fits(records)
        if ctx.reverted_to is not None:
            self.revert(ctx)
        return fits

    def revert(self, ctx: Context) -> None:
        """Goes back to what the log held where `Context.reverted_to` says, as far as no record tells.

        The groups go that came to be since, for nothing of them is written, and those come back that ended since
        without a record.
        """
        end_offset, ctx.reverted_to = ctx.reverted_to, None
        if end_offset is None:
            return
        for group in list(self.groups.values()):
            if isinstance(group, ClassicGroup) and group.created_at >= end_offset:
                del self.groups[group.group_id]
                _forget_pending(ctx, group)
                ctx.move(group, GroupEvent.REVERTED)
        for group_id, (since, ended) in self.unlogged_ends.items():
            if since == end_offset:
                self.groups[group_id] = ended
                self._add_seen_twice(end_offset, {(SEEN_GROUP, group_id)})
        self.unlogged_ends = {}

    def twice(self, ctx: Context) -> frozenset[tuple[str, ...]]:
        """Returns what a reader of what the log holds is told twice; mostly nothing."""
        end_offset, keys = self.seen_twice
        return keys if end_offset == ctx.end_offset else frozenset()

    def put_back(self, ctx: Context, records: Iterable[tuple[str, dict[str, Any], dict[str, Any] | None]]) -> None:
        """Notes what records changed that Kafka applied before the log refused them: it was put back.

        Args:
            records: type, key and value; None is a tombstone.
        """
        keys: set[tuple[str, ...]] = set()
        left: dict[tuple[str, str], set[int]] = {}
        for type_, key, value in records:
            if type_ == OFFSET_COMMIT:
                group_id, topic, partition = key["group"], key["topic"], key["partition"]
                if self.offsets.get(group_id, topic, partition) is None:
                    continue
                keys.add((SEEN_OFFSET, group_id, topic, str(partition)))
                if value is None:
                    partitions = left.setdefault((group_id, topic), set(self.offsets.committed[group_id][topic]))
                    partitions.discard(partition)
                    if not partitions:
                        keys.add((SEEN_TOPIC, group_id, topic))
            elif type_ == GROUP_METADATA:
                keys.add((SEEN_GROUP, key["group"]))
            else:
                keys |= self._replaced(type_, key, value)
        self._add_seen_twice(ctx.end_offset, keys)

    def _replaced(self, type_: str, key: dict[str, Any], value: dict[str, Any] | None) -> set[tuple[str, ...]]:
        """Returns what a record of a consumer group takes the place of, or ends."""
        group_id = key["groupId"]
        group = self.consumer(group_id)
        if group is None:
            return set() if group_id not in self.groups or value is None else {(SEEN_GROUP, group_id)}
        if type_ == GROUP_EPOCH and value is None:
            return {(SEEN_GROUP, group_id)}
        if type_ in (MEMBER, CURRENT_ASSIGNMENT) and key["memberId"] in group.members:
            return {(SEEN_MEMBER, group_id, key["memberId"])}
        return set()

    def _add_seen_twice(self, end_offset: int, keys: set[tuple[str, ...]]) -> None:
        before = self.seen_twice
        self.seen_twice = SeenTwice(
            end_offset, before.keys | keys if before.end_offset == end_offset else frozenset(keys)
        )

    def apply(
        self,
        ctx: Context,
        record_offset: int,
        type_: str,
        key: dict[str, Any],
        value: dict[str, Any] | None,
        *,
        producer_id: int | None = None,
        event: GroupEvent = GroupEvent.LOADED,
    ) -> None:
        """Changes groups and offsets as a record says.

        Args:
            record_offset: where the record stands in the offsets topic.
            event: why a group that the record ends came to its end.

        Raises:
            ValueError: a type of record that isn't known.
        """
        if type_ == OFFSET_COMMIT:
            self._apply_offset(ctx, record_offset, key, value, producer_id)
        elif type_ == GROUP_METADATA:
            if value is None:
                self._apply_tombstone(ctx, key["group"], event)
            else:
                self._apply_group(record_offset, key["group"], value)
        elif type_ == END_TXN_MARKER:
            if producer_id is not None and value is not None:
                self.offsets.end_transaction(producer_id, value["committed"])
        elif type_ in CONSUMER_RECORDS:
            self._apply_consumer(type_, key, value)
        else:
            known = ", ".join(sorted(CONSUMER_RECORDS | {OFFSET_COMMIT, GROUP_METADATA, END_TXN_MARKER}))
            raise ValueError(f"record type is {type_!r}, expected one of {known}")

    def _apply_consumer(self, type_: str, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group_id = key["groupId"]
        group = self.consumer(group_id)
        if group is None:
            if value is None:
                return
            # In place of none, or of a simple group, which an offset made that was committed before.
            group = self.groups[group_id] = ConsumerGroup(group_id)
        apply_record(group, type_, key, value)
        if type_ == GROUP_EPOCH and value is None:
            del self.groups[group_id]

    def _apply_offset(
        self,
        ctx: Context,
        record_offset: int,
        key: dict[str, Any],
        value: dict[str, Any] | None,
        producer_id: int | None,
    ) -> None:
        group_id, topic, partition = key["group"], key["topic"], key["partition"]
        if value is None:
            self.offsets.delete(group_id, topic, partition)
            return
        if group_id not in self.groups:
            # Somebody commits who uses no membership: a simple group, empty and without a protocol type.
            self.create(ctx, group_id, record_offset)
        expire = value.get("expireTimestamp", -1)
        committed = CommittedOffset(
            record_offset,
            value["offset"],
            value.get("leaderEpoch", -1),
            value["metadata"],
            value["commitTimestamp"],
            None if expire == -1 else expire,
            value.get("topicId") or ZERO_UUID,
        )
        if producer_id is None:
            self.offsets.put(group_id, topic, partition, committed)
        else:
            self.offsets.put_pending(producer_id, group_id, topic, partition, committed)

    def _apply_tombstone(self, ctx: Context, group_id: str, event: GroupEvent) -> None:
        group = self.groups.pop(group_id, None)
        if isinstance(group, ClassicGroup):
            _forget_pending(ctx, group)
            if event is not GroupEvent.LOADED:
                ctx.move(group, event)

    def _apply_group(self, record_offset: int, group_id: str, value: dict[str, Any]) -> None:
        timestamp = value.get("currentStateTimestamp", -1)
        members = value["members"]
        group = ClassicGroup(
            group_id=group_id,
            state=ClassicGroupState.STABLE if members else ClassicGroupState.EMPTY,
            state_timestamp=None if timestamp == -1 else timestamp,
            generation_id=value["generation"],
            protocol_type=value["protocolType"] or None,
            protocol_name=value["protocol"],
            leader=value["leader"],
            resync_epoch=value.get("resyncEpoch", 0),
            resync=ResyncMode(value.get("resync", 0)),
        )
        for member in members:
            group.add(
                Member(
                    member_id=member["memberId"],
                    group_instance_id=member.get("groupInstanceId"),
                    client_id=member["clientId"],
                    client_host=member["clientHost"],
                    rebalance_timeout_ms=_timeout(member),
                    session_timeout_ms=member["sessionTimeout"],
                    protocols=((value["protocol"] or "", member["subscription"]),),
                    assignment=_assignment(record_offset, member),
                    client_extensions=bool(member.get("clientExtensions")),
                ),
                value["protocolType"],
            )
        group.subscribed_topics = group.compute_subscribed_topics()
        self.groups[group_id] = group


def _forget_pending(ctx: Context, group: ClassicGroup) -> None:
    """Disarms the timers of ids that the group gave out, and of its phases.

    Kafka lets their timers run out, also where a consumer group takes the group's place: they find nobody then, and do
    nothing.
    """
    for member_id in group.pending_join:
        ctx.timers.cancel(TimerKey(SESSION, group.group_id, member_id))
    for kind in (JOIN, SYNC):
        ctx.timers.cancel(TimerKey(kind, group.group_id))


def _assignment(record_offset: int, member: dict[str, Any]) -> AssignmentRef | None:
    """Returns a record that this shard wrote knows where the bytes lie; one that was read from outside has them."""
    assignment: AssignmentRef | bytes | None = member["assignment"]
    if isinstance(assignment, bytes):
        return AssignmentRef(record_offset, member["memberId"], len(assignment), assignment) if assignment else None
    return assignment


def _timeout(member: dict[str, Any]) -> int:
    """Returns the rebalance timeout, in ms; for records of the first versions, which have none, the session's."""
    timeout = member.get("rebalanceTimeout", -1)
    return int(member["sessionTimeout"] if timeout == -1 else timeout)
