"""What holds in a shard after every row, whatever came in. No oracle is needed for it."""

from __future__ import annotations

from collections import Counter

from coordinator_udf.groups.model import timers as kinds
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.classic_states import ClassicGroupState
from coordinator_udf.groups.model.timers import KEY, TimerKey
from coordinator_udf.shard.shard import Shard

S = ClassicGroupState


def check_shard(shard: Shard) -> None:
    for group in shard.store.groups.values():
        if isinstance(group, ClassicGroup):
            check_group(group)
            check_timers(shard, group)
    check_no_stray_timers(shard)


def check_group(group: ClassicGroup) -> None:
    members = group.members
    assert group.state is not S.DEAD
    assert group.leader is None or group.leader in members
    assert (group.leader is None) == (not members)
    assert {m.group_instance_id: m.member_id for m in members.values() if m.group_instance_id is not None} == (
        group.static_members
    )
    assert group.awaiting_join_count == sum(m.awaiting_join is not None for m in members.values())
    assert group.supported == dict(Counter(name for m in members.values() for name, _ in m.protocols))
    assert not set(group.pending_join) & set(members)
    # As in Kafka, a static member that comes back is still awaited under its old id.
    assert set(group.pending_sync) <= set(members) or group.static_members
    if group.state is S.EMPTY:
        assert not members
    if group.state in {S.STABLE, S.COMPLETING_REBALANCE}:
        assert members
        assert group.supported.get(group.protocol_name or "") == len(members), "a protocol that not all support"
        assert group.awaiting_join_count == 0, "somebody waits for a join phase that is over"
        assert not any(m.is_new for m in members.values())
    if group.state is not S.COMPLETING_REBALANCE:
        assert not any(m.awaiting_sync for m in members.values()), "somebody waits for an assignment that won't come"
    if group.state is S.COMPLETING_REBALANCE:
        assert all(m.awaiting_sync is not None or m.member_id in group.pending_sync for m in members.values())


def check_timers(shard: Shard, group: ClassicGroup) -> None:
    armed = shard.ctx.timers.is_armed
    assert armed(TimerKey(kinds.JOIN, group.group_id)) == (group.state is S.PREPARING_REBALANCE)
    assert armed(TimerKey(kinds.SYNC, group.group_id)) == bool(group.pending_sync)
    for member in group.members.values():
        if not member.has_satisfied_heartbeat():
            assert armed(TimerKey(kinds.SESSION, group.group_id, member.member_id)), "a member that could never expire"
    for member_id in group.pending_join:
        assert armed(TimerKey(kinds.SESSION, group.group_id, member_id)), "an id that could never expire"


def check_no_stray_timers(shard: Shard) -> None:
    """A timer for a member that is not there, or a group that is not there, would be one for ever."""
    for entry in shard.ctx.timers.entries():
        key: TimerKey = entry[KEY]
        # A consumer group's classic members have timers of that kind each, which find nobody when they come.
        if key.kind not in {kinds.SESSION, kinds.JOIN, kinds.SYNC} or (key.kind == kinds.SYNC and key.member_id):
            continue
        group = shard.store.get(key.group_id)
        assert group is not None, f"{key} of a group that is not there"
        if key.kind == kinds.SESSION and isinstance(group, ClassicGroup):
            assert key.member_id in group.members or key.member_id in group.pending_join, f"{key} of nobody"


def parked(shard: Shard) -> set[str]:
    """The requests that wait in the shard."""
    return {
        waiting.request_id
        for group in shard.store.groups.values()
        if isinstance(group, ClassicGroup)
        for member in group.members.values()
        for waiting in (member.awaiting_join, member.awaiting_sync)
        if waiting is not None and waiting.request_id is not None
    }
