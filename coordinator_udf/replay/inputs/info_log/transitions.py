"""From lines of the INFO log to rows of group_transitions: the states of groups and their members, as far as told.

Nothing is guessed. Where the lines don't tell who the members are (the log begins after they joined, or a static member
came back under an id that no line names), ``members`` is null. A consumer group counts as Reconciling from its target
on, for no line tells when its members have reached it. Which of its two ends ended a join phase isn't told unless
members were missing: the rule is JOIN_PHASE_ENDED then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from coordinator_udf.replay.inputs.info_log.events import InfoEvent
from coordinator_udf.replay.inputs.info_log.group import CLASSIC, MODERN, Group, kind_told
from coordinator_udf.replay.inputs.info_log.lines import InfoLine

#: The rule that a classic rebalance's reason tells of, by how the reason begins (in lower case); the first that fits.
RULES: Final = (
    ("adding new member", "MEMBER_ADDED"),
    (r"removing member .* on leavegroup", "MEMBER_LEFT"),
    ("removing member", "SESSION_EXPIRED"),
    ("explicit `leavegroup`", "MEMBER_LEFT"),
    ("updating metadata for static member", "STATIC_MEMBER_REPLACED"),
    ("group's selectedprotocol will change", "STATIC_PROTOCOL_CHANGED"),
    ("updating metadata", "MEMBER_UPDATED"),
    ("member", "MEMBER_UPDATED"),
    ("leader", "LEADER_REJOINED"),
    ("removing", "SYNC_EXPIRED"),
    ("error", "STORE_FAILED"),
    ("freshly-loaded group", "OVER_CAPACITY"),
    ("downgrade", "DOWNGRADED"),
)
JOIN_PHASE_ENDED: Final = "JOIN_PHASE_ENDED"
#: Why an epoch was bumped where the line before it doesn't tell: a subscription or a topic is another.
EPOCH_BUMPED: Final = "EPOCH_BUMPED"
UNKNOWN: Final = "Unknown"

_TIMERS: Final = {
    "SESSION_EXPIRED": "session",
    "PENDING_MEMBER_EXPIRED": "session",
    "JOIN_EXPIRED": "join",
    "SYNC_EXPIRED": "sync",
    "REBALANCE_EXPIRED": "rebalance",
}
_APIS: Final = {
    "MEMBER_LEFT": "LeaveGroup",
    "LEADER_SYNCED": "SyncGroup",
    "LEADER_REJOINED": "JoinGroup",
    "MEMBER_UPDATED": "JoinGroup",
}
_E: Final = InfoEvent
#: The lines of one request stand together; a log's first lines may be slow, for classes are loaded for them.
_SAME_REQUEST_MS: Final = 1_000
#: What a line tells of a consumer group that bumps its epoch with the same request.
_BUMPS: Final[Mapping[InfoEvent, str]] = {
    _E.MEMBER_JOINED: "MEMBER_ADDED",
    _E.MEMBER_LEFT: "MEMBER_LEFT",
    _E.SESSION_EXPIRED: "SESSION_EXPIRED",
    _E.REBALANCE_EXPIRED: "REBALANCE_EXPIRED",
    _E.JOIN_EXPIRED: "JOIN_EXPIRED",
    _E.SYNC_EXPIRED: "SYNC_EXPIRED",
    _E.REGEX_RESOLVED: "REGEX_RESOLVED",
    _E.SUBSCRIPTION_CHANGED: "MEMBER_UPDATED",
}

#: A consumer group's first epoch after that of an empty one.
_FIRST_EPOCH: Final = 2


# -- members ----------------------------------------------------------------------------------------------------------


def _going(group: Group, line: InfoLine, _: InfoLine | None) -> Iterator[dict[str, Any]]:
    rule = str(line.event)
    if line.event is _E.MEMBERS_NOT_REJOINED:
        for member in line.members:
            group.remove(member)
            yield _member_row(group, line, "JOIN_EXPIRED", member)
        group.absent = line.members
        return
    if line.member_id in group.left:
        group.left.discard(line.member_id)
    elif line.event is not _E.PENDING_MEMBER_EXPIRED:
        group.remove(line.member_id)
    yield _member_row(group, line, rule, line.member_id)


def _member_row(group: Group, line: InfoLine, rule: str, member_id: str | None) -> dict[str, Any]:
    state = group.state or UNKNOWN
    return {
        "from_state": state,
        "to_state": state,
        "rule": rule,
        "reason": line.reason,
        "cause_api": _APIS.get(rule),
        "cause_timer": _TIMERS.get(rule),
        "cause_member_id": member_id,
        "cause_client_id": line.client_id if line.client_id is not None else group.client_of(member_id),
        "cause_client_host": line.client_host,
        "cause_client_reason": line.client_reason,
    }


def _joined(group: Group, line: InfoLine, _: InfoLine | None) -> Iterator[dict[str, Any]]:
    # So the broker says of a classic member of a consumer group each time it joins again, and of one of the consumer
    # protocol that asks from the beginning although it is still there.
    if line.member_id in group.known:
        group.joining_again = line
        return
    if group.state == "Empty" and group.unknown is None:
        group.unknown = 0
    if line.state == "Empty":
        group.count(0)
        group.state = "Empty"
    group.add(line.member_id)
    if group.unknown is None and line.protocol == CLASSIC:
        # Who joined before the log begins can't be told from who is new, but by the epoch that begins for the latter.
        group.joining = line
        return
    yield {**_member_row(group, line, "MEMBER_ADDED", line.member_id), "cause_api": None}


def _replaced(group: Group, line: InfoLine, _: InfoLine | None) -> Iterator[dict[str, Any]]:
    group.remove(line.old_member_id)
    group.add(line.member_id)
    yield {
        **_member_row(group, line, "STATIC_MEMBER_REPLACED", line.member_id),
        "reason": f"instance id {line.group_instance_id}, before member {line.old_member_id}",
    }


# -- classic groups ---------------------------------------------------------------------------------------------------


def _preparing(group: Group, line: InfoLine, before: InfoLine | None) -> Iterator[dict[str, Any]]:
    group.kind = CLASSIC
    reason = line.reason or ""
    rule = next((rule for start, rule in RULES if re.match(start, reason.lower())), "OTHER")
    named = line.members_in_reason()
    if rule == "SYNC_EXPIRED":
        for absent in named:
            group.remove(absent)
            yield _member_row(group, line, rule, absent)
    if rule == "MEMBER_ADDED":
        for added in named:
            # Versions before 2.6 have no line of its own for it.
            group.known[added] = None
    group.left = group.known.keys() & set(named) if rule == "MEMBER_LEFT" else set()
    for gone in group.left:
        group.remove(gone)
    member = named[0] if named else None
    words = _client_reason(reason)
    if member is None and rule == "MEMBER_LEFT" and before is not None and before.group_id == line.group_id:
        # An admin removes a static member by its instance id: who did it isn't told, but that it was one.
        words = before.client_reason if before.event is _E.MEMBER_LEFT else None
    # The line on who joins is the first of the same request's: between the two classes may be loaded, in a broker's
    # first minute, or others have their turn.
    is_second = before is not None and before.event is _E.MEMBER_JOINED and before.member_id in named
    previous = group.state
    group.state, group.generation = "PreparingRebalance", line.generation
    yield {
        **_member_row(group, line, rule, member),
        "ts": before.ts if before is not None and is_second else line.ts,
        "from_state": previous,
        "to_state": group.state,
        "cause_client_reason": words,
        "members": group.members,
    }


def _stabilized(group: Group, line: InfoLine, _: InfoLine | None) -> Iterator[dict[str, Any]]:
    previous = group.state
    group.state, group.generation = "CompletingRebalance", line.generation
    if line.member_count is None:
        # Older versions don't say who else joined.
        group.unknown = None
    group.count(line.member_count)
    absent, group.absent = group.absent, ()
    yield {
        "from_state": previous,
        "to_state": group.state,
        "rule": "JOIN_EXPIRED" if absent else JOIN_PHASE_ENDED,
        "reason": f"removed members that haven't joined: {', '.join(absent)}" if absent else None,
        "members": group.members,
    }


def _assigned(group: Group, line: InfoLine, _: InfoLine | None) -> Iterator[dict[str, Any]]:
    previous = group.state
    group.state, group.generation, group.leader = "Stable", line.generation, line.member_id
    group.name(line.member_id)
    group.count(line.member_count)
    yield {
        **_member_row(group, line, "LEADER_SYNCED", line.member_id),
        "from_state": previous,
        "reason": f"Assignment received from leader {line.member_id}",
        "members": group.members,
    }


def _emptied(group: Group, line: InfoLine, _: InfoLine | None) -> Iterator[dict[str, Any]]:
    previous = group.state
    group.state, group.generation, group.leader = "Empty", line.generation, None
    group.count(0)
    yield {"from_state": previous, "to_state": "Empty", "rule": "EMPTIED", "members": group.members}


# -- consumer groups --------------------------------------------------------------------------------------------------


def _bumped(group: Group, line: InfoLine, before: InfoLine | None) -> Iterator[dict[str, Any]]:
    cause = None
    if before is not None and before.group_id == line.group_id and line.ts - before.ts <= _SAME_REQUEST_MS:
        cause = before if before.event in _BUMPS else None
    rule = EPOCH_BUMPED if cause is None or cause.event is None else _BUMPS[cause.event]
    if cause is not None and cause is group.joining_again:
        rule = "MEMBER_UPDATED"
    is_first = group.kind == "consumer" and line.generation == _FIRST_EPOCH
    if group.unknown is None and not group.was_classic and is_first and cause is not None:
        # Without the line on who joined, the log begins just here, and nobody is known to be alone.
        group.unknown = 0
    if cause is not None and cause is group.joining:
        yield {**_member_row(group, cause, "MEMBER_ADDED", cause.member_id), "cause_api": None, "ts": cause.ts}
    previous = group.state
    group.generation, group.leader = line.generation, None
    members = group.members
    group.state = "Empty" if members == [] else "Assigning"
    yield {
        **_member_row(group, line, rule, None if cause is None else cause.member_id),
        "from_state": _left(group, previous),
        "reason": None if cause is None else cause.reason,
        "cause_client_id": None if cause is None else cause.client_id,
        "cause_client_reason": None if cause is None else cause.client_reason,
        "cause_api": None,
        "members": members,
    }


def _left(group: Group, previous: str | None) -> str | None:
    """Returns the state that a group left; None where a row would seem to be of a member.

    One whose state stays the same and that names no members tells of a member.
    """
    return None if previous == group.state and group.members is None else previous


def _upgraded(group: Group, _: InfoLine, __: InfoLine | None) -> Iterator[dict[str, Any]]:
    group.was_classic = True
    yield from ()


def _target(group: Group, line: InfoLine, before: InfoLine | None) -> Iterator[dict[str, Any]]:
    if group.generation is not None and line.generation != group.generation:
        # Before 4.0 a member that goes begins an epoch without a line that says so.
        yield from _bumped(group, line, before)
    previous = group.state
    group.state, group.generation = "Reconciling", line.generation
    yield {
        "from_state": _left(group, previous),
        "to_state": group.state,
        "rule": "TARGET_COMPUTED",
        "protocol": line.assignor,
        "members": group.members,
    }


# -- loading and the end ----------------------------------------------------------------------------------------------


def _loaded(group: Group, line: InfoLine, _: InfoLine | None) -> Iterator[dict[str, Any]]:
    group.known.clear()
    group.unknown = None
    group.count(line.member_count)
    group.generation = line.generation
    group.state = "Empty" if line.member_count == 0 else UNKNOWN
    if line.member_count and group.kind not in MODERN:
        # A classic group is stored when it is stable.
        group.state = "Stable"
    yield {"from_state": None, "to_state": group.state, "rule": "LOADED", "members": group.members}


def _gone(group: Group, line: InfoLine, _: InfoLine | None) -> Iterator[dict[str, Any]]:
    previous = group.state
    group.generation = line.generation
    rule = "UNLOADED" if line.event is _E.GROUP_UNLOADED else "DELETED"
    yield {"from_state": previous, "to_state": "Dead", "rule": rule, "members": group.members}


def _client_reason(reason: str) -> str | None:
    """Returns the client's own words at the end of a rebalance's reason (KIP-800)."""
    _, found, words = reason.partition("; client reason: ")
    return words if found else None


_OF_MODERN: Final = frozenset({_E.EPOCH_BUMPED, _E.TARGET_COMPUTED})
#: Lines that stand between what a member did and the epoch that begins with it.
_DETAILS: Final = frozenset({_E.TOPOLOGY_SET, _E.METADATA_CHANGED})
_GONE: Final = frozenset({_E.GROUP_UNLOADED, _E.GROUP_DEAD})
_GOING: Final = frozenset(
    {
        _E.MEMBER_LEFT, _E.SESSION_EXPIRED, _E.REBALANCE_EXPIRED, _E.JOIN_EXPIRED, _E.SYNC_EXPIRED,
        _E.PENDING_MEMBER_EXPIRED, _E.MEMBERS_NOT_REJOINED,
    }
)  # fmt: skip
_Handler = Callable[[Group, InfoLine, InfoLine | None], Iterator[dict[str, Any]]]
_CHANGES: Final[Mapping[InfoEvent, _Handler]] = {
    **dict.fromkeys(_GOING, _going),
    _E.MEMBER_JOINED: _joined,
    _E.STATIC_MEMBER_REPLACED: _replaced,
    _E.PREPARING_REBALANCE: _preparing,
    _E.STABILIZED: _stabilized,
    _E.ASSIGNMENT_RECEIVED: _assigned,
    _E.GROUP_EMPTY: _emptied,
    _E.EPOCH_BUMPED: _bumped,
    _E.TARGET_COMPUTED: _target,
    _E.UPGRADED: _upgraded,
    _E.GROUP_LOADED: _loaded,
    _E.GROUP_UNLOADED: _gone,
    _E.GROUP_DEAD: _gone,
}


class Transitions:
    """Turns lines, in their order, into rows of group_transitions (all columns but source)."""

    def __init__(self, kinds: Mapping[str, str], static_counts: Mapping[str, int]) -> None:
        """Begins with no group.

        Args:
            kinds: as `modern_kinds` finds them.
            static_counts: as the function of this name finds them.
        """
        self._kinds = kinds
        self._static_counts = static_counts
        self._groups: dict[str, Group] = {}
        self._last: dict[tuple[int, int | None], InfoLine] = {}

    def rows(self, seq: int, line: InfoLine) -> Iterator[dict[str, Any]]:
        """Yields the rows that a line adds: a change of state or of an epoch, or a member that comes or goes.

        Args:
            seq: the number of the line.
        """
        shard = (line.broker, line.partition)
        before = self._last.get(shard)
        if line.event not in _DETAILS or before is None or before.group_id != line.group_id:
            self._last[shard] = line
        handler = None if line.event is None else _CHANGES.get(line.event)
        if handler is None or line.group_id is None:
            return
        group = self._groups.setdefault(line.group_id, Group(self._static_counts.get(line.group_id)))
        group.note_instances(line)
        group.kind = kind_told(line) or group.kind
        if line.event in _OF_MODERN and group.kind not in MODERN:
            group.kind = self._kinds.get(line.group_id)
        for row in handler(group, line, before):
            yield {
                "partition": line.partition or 0,
                "seq": seq,
                "ts": line.ts,
                "group_id": line.group_id,
                "generation": group.generation,
                "protocol_type": group.kind if group.kind in MODERN else None,
                "leader": group.leader,
                **row,
            }
        if line.event in _GONE:
            del self._groups[line.group_id]
