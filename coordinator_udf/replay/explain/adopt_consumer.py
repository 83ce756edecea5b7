"""Consumer groups (KIP-848) that the broker may have had at a moment, as far as its answers tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from coordinator_udf.groups.consumer.topic_hash import metadata_hash
from coordinator_udf.groups.model import timers as kinds
from coordinator_udf.groups.model.consumer import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    subscribed_topics,
)
from coordinator_udf.groups.model.timers import Timer
from coordinator_udf.java_order.walks import Assigned
from coordinator_udf.protocol.consumer_protocol import MalformedConsumerProtocol, decode_subscription_topics
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.replay.explain.adopt_classic import Place
from coordinator_udf.replay.explain.old_members import REBALANCE_TIMEOUT_MS, without_subscription
from coordinator_udf.replay.explain.told import GroupTold, Partitions, Told, assigned_in, base64_bytes, partitions_of
from coordinator_udf.shard.adopt import Adoption, ArmedTimer

#: How many epochs that are told later are looked at.
_EPOCHS = 3
#: Of how many answers before the place the greatest epoch is the group's: members may have been told later ones first.
_LATEST = 16
#: How many moments are tried at which the next assignment may have been made.
_MOMENTS = 12
#: In which field an answer tells its member's epoch.
_EPOCH_IN = {"ConsumerGroupHeartbeat": "memberEpoch", "JoinGroup": "generationId"}
#: What a member was told: its epoch, the epoch before that, and its partitions if anything told of these.
View = tuple[int, int, Partitions | None]
_ASSIGNING = frozenset({"ConsumerGroupHeartbeat", "JoinGroup"})


class Surroundings(NamedTuple):
    """What a group depends on besides its requests.

    Attributes:
        topics: by name, those that there are.
        session_ms: how long the session of a member is that isn't of the classic protocol.
        interval_ms: how long after one assignment the next is made at the earliest.
    """

    topics: Mapping[str, Topic]
    session_ms: int
    interval_ms: int


def consumer_adoptions(
    told: GroupTold,
    at: Place,
    ours: ConsumerGroup | None,
    timers: Sequence[Timer],
    world: Surroundings,
) -> Iterator[Adoption]:
    """Yields what the group may have been, the likeliest first.

    Args:
        ours: a copy of what it is here; None if it isn't there, or is of the other kind.
        timers: those that it has here.
        world: what else there is.
    """
    described = _described(told, at)
    if described is not None:
        yield _adoption(told, at, _as_described(told, at, ours, described), timers, world)
    views = _views(told, at, world.topics)
    later = told.since(at.first, at.until)
    for epoch in _epochs(told, at, ours):
        targets = _targets(later, epoch)
        for group_epoch, assigned_ms in _phases(later, at, ours, epoch, world.interval_ms):
            group = ConsumerGroup(at.group_id, group_epoch, assignment_epoch=epoch, assignment_timestamp=assigned_ms)
            if ours is not None:
                group.resolved_regexes = ours.resolved_regexes
            for member in _members(told, at, ours, views, world.topics):
                target = targets.get(member.member_id)
                if target is None:
                    target = _flat(ours.targets.get(member.member_id, {})) if ours is not None else {}
                    target = target or {topic_id: tuple(held) for topic_id, held in member.assigned.items()}
                group.targets[member.member_id] = target
                group.put(_in_state(member, epoch, target))
            yield _adoption(told, at, group, timers, world)


# -- what is told ---------------------------------------------------------------------------------------------------


def _views(told: GroupTold, at: Place, topics: Mapping[str, Topic]) -> dict[str, View]:
    """Returns what each member was told before the place: its epoch, the epoch before that, and its partitions."""
    views: dict[str, View] = {}
    for item in told.all:
        if item.place >= at.first:
            break
        epoch = item.epoch if item.api == "SyncGroup" else item.answer.get(_EPOCH_IN.get(item.api, ""))
        if item.error != Errors.NONE or not isinstance(epoch, int):
            continue
        last, before, held = views.get(item.member_id, (epoch, -1, None))
        now = assigned_in(item, topics)
        views[item.member_id] = (epoch, last if epoch != last else before, held if now is None else now)
    return views


def _epochs(told: GroupTold, at: Place, ours: ConsumerGroup | None) -> list[int]:
    """Returns the epochs that the group's target assignment may have, all above 0, the likeliest first."""
    found: dict[int, None] = {}
    before = [epoch for item in told.all if item.place < at.first if (epoch := _epoch_told(item)) is not None]
    known = max(before[-_LATEST:], default=0)
    if before:
        found[known] = None
    if ours is not None:
        found[ours.assignment_epoch] = None
    later = [epoch for item in told.since(at.first, at.until) if (epoch := _epoch_told(item)) is not None]
    for epoch in sorted({epoch for epoch in later if epoch >= known})[:_EPOCHS]:
        found[epoch] = None
        found[epoch - 1] = None
    return [epoch for epoch in found if epoch > 0]


def _phases(
    later: Sequence[Told], at: Place, ours: ConsumerGroup | None, epoch: int, interval_ms: int
) -> Iterator[tuple[int, int]]:
    """Yields group epochs, each with the time (ms) at which the targets were computed: a new assignment may be due."""
    own_ms = 0 if ours is None else ours.assignment_timestamp
    yield epoch, own_ms
    following = next((item for item in later if (_epoch_told(item) or 0) > epoch), None)
    epochs = [epoch + 1]
    if following is not None:
        epochs.insert(0, _epoch_told(following) or 0)
    if ours is not None and ours.group_epoch > epoch:
        epochs.insert(0, ours.group_epoch)
    # Whoever comes first once the interval is over makes the next assignment.
    moments = [item.at_ms - interval_ms for item in later if item.api in _ASSIGNING and item.at_ms > at.now_ms]
    for group_epoch in dict.fromkeys(epochs):
        yield group_epoch, own_ms
        for assigned_ms in dict.fromkeys(moments[:_MOMENTS]):
            if own_ms < assigned_ms <= at.now_ms:
                yield group_epoch, assigned_ms


def _epoch_told(item: Told) -> int | None:
    epoch: Any = None
    if item.error == Errors.NONE and item.api == "ConsumerGroupHeartbeat":
        epoch = item.answer.get("memberEpoch")
    elif item.error == Errors.NONE and item.api == "JoinGroup":
        epoch = item.answer.get("generationId")
    return epoch if isinstance(epoch, int) and epoch > 0 else None


def _targets(later: Sequence[Told], epoch: int) -> dict[str, Partitions]:
    """Returns the partitions that heartbeats of an epoch assign to each member; the last answer counts."""
    found: dict[str, Partitions] = {}
    for item in later:
        is_told = item.api == "ConsumerGroupHeartbeat" and item.answer.get("assignment") is not None
        if is_told and _epoch_told(item) == epoch:
            found[item.member_id] = partitions_of(item.answer["assignment"])
    return found


# -- members --------------------------------------------------------------------------------------------------------


def _members(
    told: GroupTold, at: Place, ours: ConsumerGroup | None, views: Mapping[str, View], topics: Mapping[str, Topic]
) -> list[ConsumerMember]:
    members = {} if ours is None else dict(ours.members)
    unknown: list[str] = []
    for member_id, said in told.members_since(at.first, at.until).items():
        if not said:
            members.pop(member_id, None)
        elif member_id not in members:
            made = _member(told, at, member_id)
            if made is not None:
                members[member_id] = made
            elif told.is_consumer(member_id):
                unknown.append(member_id)
    members.update(without_subscription(told, at, unknown, members.values(), topics))
    for instance_id, owner in told.owners_since(at.first, at.until).items():
        for member_id in [m.member_id for m in members.values() if m.instance_id == instance_id]:
            if member_id != owner:
                del members[member_id]
        if owner not in members:
            # Of one who says nothing any more the log may have nothing else; a member has an epoch above 0.
            made = _member(told, at, owner) or ConsumerMember(owner, member_epoch=1)
            members[owner] = replace(made, instance_id=instance_id, member_epoch=max(made.member_epoch, 1))
    return [_as_told(member, views.get(member.member_id)) for member in members.values()]


def _as_told(member: ConsumerMember, view: View | None) -> ConsumerMember:
    """Returns the member with the epoch and the partitions that it was told, if that isn't what it has."""
    if view is None or view[0] < 0:
        return member
    epoch, before, held = view
    if epoch != member.member_epoch:
        member = replace(member, member_epoch=epoch, previous_member_epoch=before)
    if held is None or held == _flat(member.assigned):
        return member
    return replace(member, assigned={topic_id: dict.fromkeys(own, epoch) for topic_id, own in held.items()})


def _member(told: GroupTold, at: Place, member_id: str) -> ConsumerMember | None:
    """Returns a member as its last subscription before the place says, else as its next one does; None without.

    One that was refused changed nothing: who asked is subscribed to something else, of which the log has nothing.
    """
    refused: ConsumerMember | None = None
    for item in (*told.before(at.first), *told.since(at.first, at.until)):
        if item.member_id != member_id or (item.epoch or 0) < 0:
            # Who leaves says no subscription any more.
            continue
        if item.api == "JoinGroup" and item.request.get("protocols"):
            return _classic_member(item)
        asked = item.request.get("subscribedTopicNames"), item.request.get("subscribedTopicRegex")
        if item.api == "ConsumerGroupHeartbeat" and asked != (None, None):
            if item.error == Errors.NONE:
                return _subscribed(item)
            refused = refused or replace(_subscribed(item), subscribed_topic_names=(), subscribed_topic_regex="")
    return refused


def _subscribed(item: Told) -> ConsumerMember:
    """Returns a member as its heartbeat says that has a subscription."""
    return ConsumerMember(
        item.member_id,
        item.epoch or 0,
        instance_id=item.request.get("instanceId"),
        rack_id=item.request.get("rackId"),
        rebalance_timeout_ms=item.request.get("rebalanceTimeoutMs", -1),
        client_id=item.step.row["client_id"] or "",
        client_host=item.step.row["client_host"] or "",
        subscribed_topic_names=tuple(sorted(set(item.request.get("subscribedTopicNames") or ()))),
        subscribed_topic_regex=item.request.get("subscribedTopicRegex") or "",
        server_assignor=item.request.get("serverAssignor"),
    )


def _classic_member(item: Told) -> ConsumerMember:
    """Returns a member of the classic protocol as its JoinGroup says."""
    asked, row = item.request, item.step.row
    session_ms = asked["sessionTimeoutMs"]
    protocols = tuple((p["name"], base64_bytes(p["metadata"])) for p in asked["protocols"])
    return ConsumerMember(
        item.member_id,
        item.answer.get("generationId") or 0,
        instance_id=row["group_instance_id"],
        rebalance_timeout_ms=asked.get("rebalanceTimeoutMs", session_ms),
        client_id=row["client_id"] or "",
        client_host=row["client_host"] or "",
        subscribed_topic_names=_subscription(protocols),
        classic=ClassicMetadata(session_ms, protocols),
    )


def _subscription(protocols: Sequence[tuple[str, bytes]]) -> tuple[str, ...]:
    try:
        return tuple(sorted({topic for _, metadata in protocols[:1] for topic in decode_subscription_topics(metadata)}))
    except MalformedConsumerProtocol:
        return ()


def _in_state(member: ConsumerMember, epoch: int, target: Partitions) -> ConsumerMember:
    """Returns the member in the state that follows from its partitions and those it is to have."""
    if member.pending_revocation:
        return member
    has, wants = _flat(member.assigned), {topic_id: tuple(sorted(own)) for topic_id, own in target.items() if own}
    if member.member_epoch == epoch and has != wants:
        return replace(member, state=MemberState.UNRELEASED_PARTITIONS)
    return replace(member, state=MemberState.STABLE)


def _flat(assigned: Mapping[str, Any]) -> Partitions:
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in assigned.items() if partitions}


# -- as it was described --------------------------------------------------------------------------------------------


def _described(told: GroupTold, at: Place) -> dict[str, Any] | None:
    """Returns the group as a ConsumerGroupDescribe right before the place tells it; None where that came not last."""
    last = next(told.before(at.first), None)
    return None if last is None else told.described_at(last.place)


def _as_described(told: GroupTold, at: Place, ours: ConsumerGroup | None, said: Mapping[str, Any]) -> ConsumerGroup:
    group = ConsumerGroup(at.group_id, group_epoch=said["groupEpoch"], assignment_epoch=said["assignmentEpoch"])
    if ours is not None:
        group.resolved_regexes = ours.resolved_regexes
        group.assignment_timestamp = ours.assignment_timestamp
    for described in said["members"]:
        member_id = described["memberId"]
        known = ours.members.get(member_id) if ours is not None else None
        member = known or _member(told, at, member_id) or _voting(member_id, said["assignorName"])
        target, held = partitions_of(described["targetAssignment"]), partitions_of(described["assignment"])
        epoch = described["memberEpoch"]
        if known is None or known.member_epoch != epoch or _held(known) != held:
            assigned: Assigned = {topic_id: dict.fromkeys(own, epoch) for topic_id, own in held.items()}
            member = replace(member, member_epoch=epoch, assigned=assigned, pending_revocation={})
        member = replace(
            member,
            instance_id=described["instanceId"],
            rack_id=described["rackId"],
            client_id=described["clientId"],
            client_host=described["clientHost"],
            subscribed_topic_names=tuple(sorted(described["subscribedTopicNames"])),
            subscribed_topic_regex=described["subscribedTopicRegex"] or "",
        )
        group.targets[member_id] = target
        group.put(_in_state(member, group.assignment_epoch, target))
    return group


def _voting(member_id: str, assignor: str) -> ConsumerMember:
    """Returns a member of whose subscription the log has nothing; the group's assignor is the one that it asked for."""
    return ConsumerMember(member_id, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, server_assignor=assignor)


def _held(member: ConsumerMember) -> Partitions:
    both: dict[str, set[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, held in partitions.items():
            both.setdefault(topic_id, set()).update(held)
    return _flat(both)


# -- the rest -------------------------------------------------------------------------------------------------------


def _adoption(
    told: GroupTold, at: Place, group: ConsumerGroup, timers: Sequence[Timer], world: Surroundings
) -> Adoption:
    group.metadata_hash = metadata_hash(world.topics, subscribed_topics(group.members.values(), group.resolved_regexes))
    armed = {(timer.key.kind, timer.key.member_id): timer for timer in timers}
    found: list[ArmedTimer] = []
    for member in group.members.values():
        for kind in (kinds.REBALANCE, kinds.JOIN, kinds.SYNC):
            timer = armed.get((kind, member.member_id))
            if timer is not None:
                found.append(ArmedTimer(kind, member.member_id, timer.deadline_ms, timer.data))
        timer = armed.get((kinds.SESSION, member.member_id))
        if timer is not None:
            found.append(ArmedTimer(kinds.SESSION, member.member_id, timer.deadline_ms, timer.data))
            continue
        ends_ms = _session_end_ms(told, at, group, member, world)
        found.append(ArmedTimer(kinds.SESSION, member.member_id, max(at.now_ms, ends_ms)))
    return Adoption(at.group_id, group, tuple(found))


def _session_end_ms(
    told: GroupTold, at: Place, group: ConsumerGroup, member: ConsumerMember, world: Surroundings
) -> int:
    """Returns when a member's session ends unless it is heard: at the latest when answers tell that it is gone.

    When a member was heard last that was silent before the log began, only that tells. A member's end is a new epoch.
    """
    own_ms = world.session_ms if member.classic is None else member.classic.session_timeout_ms
    heard = (item.at_ms for item in told.before(at.first) if item.member_id == member.member_id)
    ends_ms = next(heard, at.now_ms) + own_ms
    goes = told.goes(member.member_id, at.first)
    if goes is None or ends_ms < goes.gone_ms:
        return ends_ms
    first, epoch = goes.described or (at.first, group.group_epoch)
    rises = (item.at_ms for item in told.since(first, at.until) if (_epoch_told(item) or 0) > epoch)
    return min(next(rises, goes.gone_ms), goes.gone_ms) - 1
