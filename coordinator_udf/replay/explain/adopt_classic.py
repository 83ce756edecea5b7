"""Classic groups that the broker may have had at a moment, as far as its answers tell: where a group is put right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from coordinator_udf.groups.model import timers as kinds
from coordinator_udf.groups.model.classic import ClassicGroup, Member, Protocols
from coordinator_udf.groups.model.classic_states import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroupState,
)
from coordinator_udf.groups.model.timers import Timer
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.explain.told import GroupTold, Told, base64_bytes
from coordinator_udf.shard.adopt import Adoption, ArmedTimer

#: How many generations that are told later are looked at.
_GENERATIONS = 3


class Place(NamedTuple):
    """Where a group is put right: before the step ``first``, at a time; later steps are looked at up to ``until``."""

    group_id: str
    first: int
    until: int
    now_ms: int


def classic_adoptions(
    told: GroupTold, at: Place, ours: ClassicGroup | None, timers: Sequence[Timer]
) -> Iterator[Adoption]:
    """Yields what the group may have been, the likeliest first.

    Args:
        ours: a copy of what it is here; None if it isn't there.
        timers: those that it has here.
    """
    members = _members(told, at, ours)
    pending = _pending(told, at, ours)
    for generation, state in _phases(told, at, ours):
        group = _group(told, at, ours, generation, state if members else EMPTY)
        parked = state is not STABLE and ours is not None and ours.state is state
        for member in members:
            kept = member if parked else _without_waiting(member)
            group.add(kept, group.protocol_type or _protocol_type(told, at) or "consumer")
        if group.members and not _choose_protocol(group):
            continue
        if not generation:
            group.protocol_name = None
        group.leader = _leader(told, at, ours, group)
        group.pending_join = dict.fromkeys(pending, 1)
        if state is COMPLETING_REBALANCE:
            asked = set(_synced_before(told, at, generation))
            group.pending_sync = {member_id: 1 for member_id in group.members if member_id not in asked}
        group.subscribed_topics = group.compute_subscribed_topics()
        assignments = _assignments(told, generation, group) if state is STABLE else {}
        yield Adoption(at.group_id, group, _timers(told, at, group, timers), assignments)


def _choose_protocol(group: ClassicGroup) -> bool:
    """Selects a protocol that all members support, if the group's isn't one; tells whether there is one."""
    common = [name for name, count in group.supported.items() if count == len(group.members)]
    if common and group.protocol_name not in common:
        group.protocol_name = group.select_protocol()
    return bool(common)


def _group(
    told: GroupTold, at: Place, ours: ClassicGroup | None, generation: int, state: ClassicGroupState
) -> ClassicGroup:
    protocol = ours.protocol_name if ours is not None else None
    for joined in _joins(told.all):
        if joined.answer.get("generationId") == generation:
            protocol = joined.answer.get("protocolName") or protocol
    keeps = ours is not None and ours.state is state
    return ClassicGroup(
        group_id=at.group_id,
        state=state,
        previous_state=ours.previous_state if ours is not None and keeps else STABLE,
        state_timestamp=at.now_ms,
        generation_id=generation,
        protocol_type=(ours.protocol_type if ours is not None else None) or _protocol_type(told, at),
        protocol_name=protocol if state is not EMPTY else None,
        created_at=-1,
    )


def _phases(told: GroupTold, at: Place, ours: ClassicGroup | None) -> Iterator[tuple[int, ClassicGroupState]]:
    """Yields the generations and states that the group may be in, the likeliest first."""
    later = told.since(at.first, at.until)
    generations: list[int] = [] if ours is None else [ours.generation_id]
    named = [item.epoch for item in later if item.error == Errors.NONE and _names_generation(item)]
    joined = [item.answer["generationId"] for item in _joins(later)]
    for found in (*named[:1], *(number for value in dict.fromkeys(joined) for number in (value - 1, value))):
        if isinstance(found, int) and found >= 0 and found not in generations:
            generations.append(found)
        if len(generations) > 2 * _GENERATIONS:
            break
    own = () if ours is None else (ours.state,)
    for generation in generations or [0]:
        for state in dict.fromkeys((*own, STABLE, PREPARING_REBALANCE, COMPLETING_REBALANCE)):
            # Before its first generation a group is open to those who join, and has no protocol.
            if state in {PREPARING_REBALANCE, EMPTY} or (generation and state in {STABLE, COMPLETING_REBALANCE}):
                yield generation, state


def _synced_before(told: GroupTold, at: Place, generation: int) -> Iterator[str]:
    """Yields who had asked for an assignment of a generation already: no timer puts these out for not asking."""
    for item in told.before(at.first):
        if item.api == "SyncGroup" and item.error == Errors.NONE and item.epoch == generation:
            yield item.member_id


def _names_generation(item: Told) -> bool:
    return item.api in {"Heartbeat", "SyncGroup", "OffsetCommit"} and item.epoch is not None and item.epoch >= 0


def _joins(items: Sequence[Told]) -> Iterator[Told]:
    """Yields the JoinGroup requests that were answered with a generation."""
    for item in items:
        if item.api == "JoinGroup" and item.error == Errors.NONE and isinstance(item.answer.get("generationId"), int):
            yield item


def _members(told: GroupTold, at: Place, ours: ClassicGroup | None) -> list[Member]:
    """Returns our members without those that the broker doesn't know, and those of the broker that we don't have."""
    members = {} if ours is None else dict(ours.members)
    for member_id, said in told.members_since(at.first, at.until).items():
        if not said:
            members.pop(member_id, None)
        elif member_id not in members and not _is_pending(told, at, member_id):
            made = _member(told, at, member_id)
            if made is not None:
                members[member_id] = made
    return list(members.values())


def _member(told: GroupTold, at: Place, member_id: str) -> Member | None:
    """Returns a member as its joins before the place made it, else as its next one says; None without either."""
    item = _last_that_counted(told, at, member_id)
    if item is None:
        return None
    found: Protocols = tuple((p["name"], base64_bytes(p["metadata"])) for p in item.request["protocols"])
    row = item.step.row
    session_ms = item.request["sessionTimeoutMs"]
    rebalance_ms = item.request.get("rebalanceTimeoutMs", session_ms)
    instance_id = row["group_instance_id"]
    host = row["client_host"] or ""
    return Member(member_id, instance_id, row["client_id"] or "", host, rebalance_ms, session_ms, found)


def _last_that_counted(told: GroupTold, at: Place, member_id: str) -> Told | None:
    """Returns the last JoinGroup before the place by which a member became what it is, else the next one, if any.

    Who joins again without a change is told the generation that there is, and its timeouts stay: what counted is the
    first join that a generation was the answer to.
    """
    before = (item for item in told.before(at.first) if _joins_as(item, member_id))
    last = next(before, None)
    if last is None:
        return next((item for item in told.since(at.first, at.until) if _joins_as(item, member_id)), None)
    for item in chain((last,), before):
        if item.error != Errors.NONE:
            continue
        if last.error != Errors.NONE or item.answer.get("generationId") == last.answer.get("generationId"):
            last = item
        else:
            break
    return last


def _joins_as(item: Told, member_id: str) -> bool:
    return item.api == "JoinGroup" and item.member_id == member_id and bool(item.request.get("protocols"))


def _is_pending(told: GroupTold, at: Place, member_id: str) -> bool:
    """Tells whether the last that a member was told is its id (MEMBER_ID_REQUIRED): it hasn't joined with it."""
    last = next((item for item in told.before(at.first) if item.member_id == member_id), None)
    return last is not None and last.error == Errors.MEMBER_ID_REQUIRED


def _pending(told: GroupTold, at: Place, ours: ClassicGroup | None) -> list[str]:
    pending = dict(ours.pending_join) if ours is not None else {}
    for item in told.since(at.first, at.until):
        if item.api == "JoinGroup" and item.error == Errors.NONE and _is_pending(told, at, item.member_id):
            pending.setdefault(item.member_id, 1)
    return list(pending)


def _without_waiting(member: Member) -> Member:
    return Member(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        member.protocols,
        member.assignment,
    )


def _protocol_type(told: GroupTold, at: Place) -> str | None:
    for item in (*told.before(at.first), *told.since(at.first, at.until)):
        if item.api == "JoinGroup" and item.request.get("protocolType"):
            return str(item.request["protocolType"])
    return None


def _leader(told: GroupTold, at: Place, ours: ClassicGroup | None, group: ClassicGroup) -> str | None:
    """Returns the leader that a JoinGroup answer of the generation names, if it is a member."""
    for item in _joins(told.all):
        if item.answer["generationId"] == group.generation_id and item.answer.get("leader") in group.members:
            return str(item.answer["leader"])
    if ours is not None and ours.leader in group.members:
        return ours.leader
    return group.leader


def _assignments(told: GroupTold, generation: int, group: ClassicGroup) -> dict[str, bytes]:
    """Returns a generation's assignments by member id, from the leader's SyncGroup or else from the answers."""
    for item in told.all:
        if item.api == "SyncGroup" and item.error == Errors.NONE and item.epoch == generation:
            found = {a["memberId"]: base64_bytes(a["assignment"]) for a in item.request.get("assignments") or ()}
            if any(member_id in group.members for member_id in found):
                return found
    return {
        item.member_id: base64_bytes(item.answer.get("assignment"))
        for item in told.all
        if item.api == "SyncGroup" and item.error == Errors.NONE and item.epoch == generation
    }


def _timers(told: GroupTold, at: Place, group: ClassicGroup, ours: Sequence[Timer]) -> tuple[ArmedTimer, ...]:
    """Returns our timers that the group can still have, and session timers for the other members since last heard."""
    armed = {(timer.key.kind, timer.key.member_id): timer for timer in ours}
    found: list[ArmedTimer] = []
    for member_id in (*group.members, *group.pending_join):
        timer = armed.get((kinds.SESSION, member_id))
        if timer is not None:
            found.append(ArmedTimer(kinds.SESSION, member_id, timer.deadline_ms, timer.data))
            continue
        member = group.members.get(member_id)
        session_ms = member.session_timeout_ms if member is not None else _session_ms(told, member_id)
        heard_ms = next((item.at_ms for item in told.before(at.first) if item.member_id == member_id), at.now_ms)
        found.append(ArmedTimer(kinds.SESSION, member_id, max(at.now_ms, heard_ms + session_ms)))
    phase = {PREPARING_REBALANCE: kinds.JOIN, COMPLETING_REBALANCE: kinds.SYNC}.get(group.state)
    if phase is not None:
        timer = armed.get((phase, ""))
        data = (group.generation_id,) if phase == kinds.SYNC else () if timer is None else timer.data
        deadline_ms = at.now_ms + group.rebalance_timeout_ms() if timer is None else timer.deadline_ms
        found.append(ArmedTimer(phase, "", deadline_ms, data))
    return tuple(found)


def _session_ms(told: GroupTold, member_id: str) -> int:
    asked = (item.request.get("sessionTimeoutMs") for item in told.all if item.member_id == member_id)
    return next((wait for wait in asked if isinstance(wait, int)), 10_000)
