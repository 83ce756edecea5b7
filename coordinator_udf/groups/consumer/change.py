"""One request's change of a consumer group: its steps, the records they make, and the write at its end.

The group itself changes with `Change.write` and not before: a request that is refused half-way, or that the log
doesn't take, writes no record and leaves members, epochs and targets as they were. What Kafka keeps beside its
records changes as a step comes to it and stays so: timers that are armed or cancelled, when the topics are to be
looked at again, and answers to requests that waited. The steps are those of a heartbeat and of a classic member's
JoinGroup alike. Source: GroupMetadataManager (hasMemberSubscriptionChanged, maybeUpdateRegularExpressions,
updateSubscriptionMetadata, maybeUpdateTargetAssignment, maybeReconcile).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import partial

from msgspec.structs import replace

from coordinator_udf.groups.consumer.client_assignors import choose, uses_client_assignors
from coordinator_udf.groups.consumer.computation import assign_to_member, told, watch, with_departures
from coordinator_udf.groups.consumer.reconcile import Goal, Owned, reconcile
from coordinator_udf.groups.consumer.regex import RegexChange, check_regex, regexes_to_refresh, resolve
from coordinator_udf.groups.consumer.target import compute_target, subscribed_names, subscribed_topic_ids
from coordinator_udf.groups.consumer.topic_hash import metadata_hash
from coordinator_udf.groups.consumer.writing import check_fits, note_change, write_records
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.groups.model.client_assignment import Computation
from coordinator_udf.groups.model.consumer import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
    is_homogeneous,
    regex_counts,
    subscribed_topics,
)
from coordinator_udf.groups.model.timers import Timer, TimerKey
from coordinator_udf.groups.records.consumer import (
    GROUP_EPOCH,
    MEMBER,
    PARTITION_METADATA,
    REGEX,
    NewRecord,
    current_assignment,
    group_epoch,
    member_metadata,
    resolved_regex,
    tombstone,
)
from coordinator_udf.groups.store import GroupStore
from coordinator_udf.java_order.walks import Target, target_in_kafka_order
from coordinator_udf.protocol.errors import ApiError, Errors

#: So long nobody looks at the topics unless they are known to have changed: 25 days, as in GroupMetadataManager.
METADATA_REFRESH_INTERVAL_MS = 2**31 - 1


class Change:
    """What a request is about to do to a consumer group, which may be one that isn't there yet.

    Attributes:
        group: the group as it is before the request.
        records: what will be written.
        after: what has to be done once it is written, before anything else happens.
    """

    def __init__(self, ctx: Context, store: GroupStore, group: ConsumerGroup) -> None:
        self.ctx = ctx
        self.store = store
        self.group = group
        self.records: list[NewRecord] = []
        self.after: list[Callable[[], None]] = []
        self._refresh: list[str] = []
        self._epoch = group.group_epoch
        self._metadata_hash = group.metadata_hash
        self._computation = group.computation
        self._epoch_is_new = False
        self._target_is_new = False

    # -- the steps ------------------------------------------------------------------------------------------------

    def update_member(self, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Notes who the member is now; whether the topics that it names are others."""
        if updated == member:
            return False
        self.records.append(member_metadata(self.group.group_id, updated))
        return updated.subscribed_topic_names != member.subscribed_topic_names

    def update_regex(self, member: ConsumerMember, updated: ConsumerMember) -> RegexChange:
        """Notes the member's regular expression, and sees whether the group's have to be resolved.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION.
        """
        group = self.group
        old, new = member.subscribed_topic_regex, updated.subscribed_topic_regex
        counts = regex_counts(group.members.values())
        change, is_new = RegexChange.NONE, False
        if old != new:
            change = RegexChange.UPDATED
            if old and counts[old] == 1:
                self.records.append(tombstone(REGEX, group.group_id, regularExpression=old))
            if new and not counts[new]:
                check_regex(new)
                is_new = True
            elif (new and new in group.resolved_regexes) or (old and not new):
                change = RegexChange.RESOLVED
        self._refresh = regexes_to_refresh(self.ctx, group, member, updated, is_new=is_new)
        return change

    def update_epoch(self, member: ConsumerMember, updated: ConsumerMember, *, bump: bool) -> int:
        """Raises the group's epoch if asked to, or if a topic has changed; the epoch then."""
        group = self.group
        if not bump and self.ctx.now_ms < group.metadata_refresh_ms:
            return group.group_epoch
        self._epoch_is_new = True
        topics = subscribed_topics(group.members_with(member, updated), self._resolved_after(member, updated))
        new_hash = metadata_hash(self.ctx.topics, topics)
        epoch = group.group_epoch
        if bump or new_hash != group.metadata_hash:
            epoch += 1
            self._epoch, self._metadata_hash = epoch, new_hash
            self.records.append(group_epoch(group.group_id, epoch, new_hash, self._computation))
            # Known once the epoch is written: if that fails the next request looks again.
            group.metadata_refresh_ms = 0
            self.after.append(partial(_mark_known, self.ctx, group))
        else:
            _mark_known(self.ctx, group)
        if group.has_partition_metadata:
            self.records.append(tombstone(PARTITION_METADATA, group.group_id))
        return epoch

    def _resolved_after(self, member: ConsumerMember, updated: ConsumerMember) -> dict[str, ResolvedRegex]:
        """Returns the resolved expressions without one that its last subscriber gives up."""
        old = member.subscribed_topic_regex
        gone = old and old != updated.subscribed_topic_regex
        if not gone or regex_counts(self.group.members.values())[old] != 1:
            return self.group.resolved_regexes
        return {regex: topics for regex, topics in self.group.resolved_regexes.items() if regex != old}

    def note_epochs(
        self, member: ConsumerMember, updated: ConsumerMember, epoch: int, *, joined: bool, subscribed: bool
    ) -> ConsumerMember:
        """Notes since which epoch a group whose members may compute has a member, and its subscription.

        Args:
            joined: whether the member is new in the group.
            subscribed: whether its subscription is new.

        Returns:
            The member with what was noted.
        """
        if not self.ctx.settings.group_consumer_client_assignors_enable or not (joined or subscribed):
            return updated
        if not uses_client_assignors(self.group.members_with(member, updated)):
            return updated
        noted = replace(updated, joined_epoch=epoch if joined else updated.joined_epoch, subscribed_epoch=epoch)
        for place in reversed(range(len(self.records))):
            record = self.records[place]
            if record.type == MEMBER and record.value is not None and record.key["memberId"] == updated.member_id:
                self.records[place] = member_metadata(self.group.group_id, noted)
                return noted
        return updated

    def set_computation(self, computation: Computation | None) -> None:
        """Notes who computes the group's assignment."""
        if computation == self._computation:
            return
        self._computation = computation
        record = group_epoch(self.group.group_id, self._epoch, self._metadata_hash, computation)
        places = [i for i, known in enumerate(self.records) if known.type == GROUP_EPOCH]
        if places:
            self.records[places[-1]] = record
        else:
            self.records.append(record)

    def let_member_assign(self, members: Sequence[ConsumerMember], *, asking: str = "") -> bool:
        """Chooses who computes the group's assignment, and tells it if it is asking.

        Args:
            members: the members as they will be.
            asking: the member whose heartbeat this is; "" for what is no heartbeat of a member that could be told.

        Returns:
            Whether a member computes; else the coordinator has to.
        """
        choice = choose(members) if self.ctx.settings.group_consumer_client_assignors_enable else None
        computation = assign_to_member(self._computation, choice, self._epoch, asking=asking)
        if computation is not None and asking and computation.member_id == asking:
            computation = told(computation, self.ctx.now_ms)
        self.set_computation(computation)
        return computation is not None

    def rename_in_computation(self, old_id: str, new_id: str) -> None:
        """Notes that a static member came back under another id while an assignment is computed."""
        if self._computation is not None and old_id != new_id:
            self.set_computation(with_departures(self._computation, [old_id], self._epoch, new_id))

    def replace_in_computation(self, member: ConsumerMember) -> None:
        """Chooses another member to compute if it was for this one, which can't now."""
        if self._computation is not None:
            members = list(self.group.members_with(member, member))
            self.set_computation(assign_to_member(self._computation, choose(members), self._epoch))

    def raise_epoch(self, metadata_hash: int) -> None:
        """Raises the group's epoch, with the hash of the topics that the next target is for."""
        self._epoch, self._metadata_hash = self.group.group_epoch + 1, metadata_hash
        self.records.append(group_epoch(self.group.group_id, self._epoch, metadata_hash, self._computation))

    def drop_from_computation(self, gone: Sequence[str], left: Sequence[ConsumerMember]) -> None:
        """Notes that members went while an assignment is computed, and chooses another one if it was theirs to do."""
        if self._computation is None:
            return
        computation = with_departures(self._computation, gone, self._epoch)
        self.set_computation(assign_to_member(computation, choose(left), self._epoch))

    def update_target(
        self, member: ConsumerMember, updated: ConsumerMember, epoch: int, *, asking: str = ""
    ) -> tuple[int, Target]:
        """Computes new targets if they are of an older epoch and it is time; their epoch and the member's target.

        Args:
            asking: the member, if it can be told to compute them.

        Raises:
            ApiError: UNKNOWN_SERVER_ERROR, where the members want an assignor that is not configured any more.
        """
        ctx, group = self.ctx, self.group
        if group.assignment_epoch >= epoch or not self._may_assign():
            return group.assignment_epoch, group.target(updated.member_id, updated.instance_id)
        if self.let_member_assign(list(group.members_with(member, updated)), asking=asking):
            return group.assignment_epoch, group.target(updated.member_id, updated.instance_id)
        name = group.wanted_assignor(member, updated)
        assignor = next(iter(ctx.assignors.values())) if name is None else ctx.assignors.get(name)
        if assignor is None:
            raise ApiError(Errors.UNKNOWN_SERVER_ERROR, f"assignor {name} is not configured")
        # Where nobody looked at the topics Kafka takes what it knew of the group before this request.
        homogeneous = (
            is_homogeneous(group.members_with(member, updated), self._resolved_after(member, updated))
            if self._epoch_is_new
            else group.is_homogeneous()
        )
        when = (epoch, ctx.now_ms)
        records, target = compute_target(ctx.topics, assignor, group, updated, when, homogeneous=homogeneous)
        self.records += records
        self._target_is_new = True
        return epoch, target

    def _may_assign(self) -> bool:
        """Returns whether enough time passed since the last targets: so many joins make one assignment (KIP-1263)."""
        interval_ms = self.ctx.group_setting(self.group.group_id, "consumer_assignment_interval_ms")
        since = self.group.assignment_timestamp
        return since == 0 or interval_ms == 0 or self.ctx.now_ms >= since + interval_ms

    def reconcile(
        self, member: ConsumerMember, epoch: int, target: Target, *, subscription_changed: bool, owned: Owned
    ) -> ConsumerMember:
        """Takes the member a step towards its target; the member then.

        Raises:
            ApiError: FENCED_MEMBER_EPOCH.
        """
        ctx, group = self.ctx, self.group
        if not subscription_changed and member.is_reconciled_to(epoch):
            return member
        names = subscribed_names(member, group.resolved_regexes)
        topic_ids = subscribed_topic_ids(ctx.topics, names)
        if not self._target_is_new:
            target = target_in_kafka_order(target)
        goal = Goal(epoch, target, topic_ids, bool(names), subscription_changed, group.partition_epoch, owned)
        updated = reconcile(member, goal)
        if updated == member:
            return member
        self.records.append(current_assignment(group.group_id, updated))
        if updated.classic is None:
            key = TimerKey(timers.REBALANCE, group.group_id, updated.member_id)
            if updated.state is MemberState.UNREVOKED_PARTITIONS:
                ctx.timers.arm(key, ctx.now_ms + updated.rebalance_timeout_ms, updated.member_epoch)
            else:
                ctx.timers.cancel(key)
        return updated

    # -- the write ------------------------------------------------------------------------------------------------

    def write(self, event: GroupEvent, reason: str | None = None, *, always: bool = False) -> None:
        """Writes the records, which changes the group, and puts out a transition if its state is another then.

        Args:
            always: puts it out also if the state is the same.

        Raises:
            ApiError: UNKNOWN_SERVER_ERROR, where they are too large for the log; nothing has changed then.
        """
        check_fits(self.ctx, self.store, self.records)
        group_id = self.group.group_id
        before = self.store.get(group_id)
        previous = None if before is None else before.state
        epoch = None if before is None else before.generation_id
        computation = self.group.computation
        write_records(self.ctx, self.store, self.records)
        self.records = []
        for action in self.after:
            action()
        self.after = []
        noted = note_change(self.ctx, self.store, group_id, previous, event, epoch=epoch, reason=reason)
        group = self.store.get(group_id)
        if always and not noted and group is not None:
            self.ctx.note(group, previous, event, reason)
        if isinstance(group, ConsumerGroup) and group.computation != computation:
            watch(self.ctx, group, computation)

    def resolve_regexes(self) -> None:
        """Resolves the group's regular expressions if they have to be: a write of its own, after the answer.

        Kafka does it in another thread; what comes of it is told to the group at once here, unless a timer says when.
        """
        if not self._refresh:
            return
        resolved, group_id = resolve(self.ctx, self._refresh), self.group.group_id
        self._refresh = []
        if self.ctx.timers.is_armed(TimerKey(timers.REGEX, group_id)):
            self.ctx.resolving[group_id] = resolved
        else:
            store_resolved(self.ctx, self.store, group_id, resolved)


def tell_resolved(ctx: Context, store: GroupStore, group: ConsumerGroup, _: Timer) -> None:
    """Tells a group what its regular expressions match, which was found out earlier."""
    resolved = ctx.resolving.pop(group.group_id, None)
    if resolved:
        store_resolved(ctx, store, group.group_id, resolved)


def store_resolved(ctx: Context, store: GroupStore, group_id: str, resolved: dict[str, ResolvedRegex]) -> None:
    """Keeps what regular expressions match now, and raises the group's epoch if that changed anything."""
    group = store.consumer(group_id)
    if group is None:
        return
    previous, epoch = group.state, group.group_epoch
    counts = regex_counts(group.members.values())
    still_wanted = {regex: topics for regex, topics in resolved.items() if counts[regex]}
    records = [resolved_regex(group_id, regex, topics) for regex, topics in still_wanted.items()]
    known = group.resolved_regexes
    changed = any(set(topics.topics) != set(known[regex].topics if regex in known else ())
                  for regex, topics in still_wanted.items())  # fmt: skip
    after = {**known, **still_wanted}
    new_hash = metadata_hash(ctx.topics, subscribed_topics(group.members.values(), after))
    if changed or new_hash != group.metadata_hash:
        records.append(group_epoch(group_id, group.group_epoch + 1, new_hash, group.computation))
    if not store.make_room(ctx, [record.sizes for record in records]):
        group.metadata_refresh_ms = 0
        return
    if changed or new_hash != group.metadata_hash:
        _mark_known(ctx, group)
    write_records(ctx, store, records)
    note_change(ctx, store, group_id, previous, GroupEvent.REGEX_RESOLVED, epoch=epoch)


def _mark_known(ctx: Context, group: ConsumerGroup) -> None:
    """Notes the hash of the group's topics as it is now."""
    group.metadata_refresh_ms = ctx.now_ms + METADATA_REFRESH_INTERVAL_MS


def look_again(store: GroupStore, changed: Set[str]) -> None:
    """Has groups look at their topics with the next request if they are subscribed to one that came, changed or went.

    Only those: others may be about to change their subscription without a new epoch, until a regular expression is
    resolved. Source: GroupMetadataManager.onMetadataUpdate.
    """
    for group in store.groups.values():
        if isinstance(group, ConsumerGroup) and not changed.isdisjoint(
            subscribed_topics(group.members.values(), group.resolved_regexes)
        ):
            group.metadata_refresh_ms = 0
