"""What records of ``__consumer_offsets`` tell of their groups, as rows of group_transitions.

A classic group is stored when its rebalance is through: when it began, and what set it off, isn't told (rule NOT_TOLD).
Of a consumer group each epoch is, with the members that changed in the same write. Members that are gone left or were
put out: which of the two isn't told either (rule GONE).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

Row = Mapping[str, Any]
Transition = dict[str, Any]

NOT_TOLD: Final = "NOT_TOLD"
GONE: Final = "GONE"
_ADDED: Final = "MEMBER_ADDED"
_REPLACED: Final = "STATIC_MEMBER_REPLACED"
_STABLE_MEMBER: Final = 0
#: A transition's columns that records don't fill.
_EMPTY: Final = dict.fromkeys(
    (
        "from_state", "generation", "protocol_type", "protocol", "leader", "reason", "members", "cause_request_id",
        "cause_api", "cause_member_id", "cause_client_id", "cause_client_host", "cause_client_reason", "cause_timer",
    )
)  # fmt: skip


class _Member:
    """What was stored of a member."""

    def __init__(self, member_id: str, client_id: str | None, host: str | None, instance_id: str | None) -> None:
        self.member_id = member_id
        self.client_id = client_id
        self.host = host
        self.instance_id = instance_id
        self.epoch: int | None = None
        self.is_stable = False


class _Group:
    """What records told of a group so far."""

    def __init__(self) -> None:
        self.state: str | None = None
        self.members: dict[str, _Member] = {}
        self.is_consumer = False
        self.epoch = 0
        self.target_epoch: int | None = None
        #: What the records of the write at hand changed, before the epoch is bumped.
        self.changed: tuple[int, str, _Member | None] | None = None


def transitions(rows: Sequence[Row]) -> Iterator[Transition]:
    """Yields rows of group_transitions (all columns but source), numbered by partition.

    Args:
        rows: of consumer_offsets, in the order of partition and offset.
    """
    groups: dict[tuple[int, str], _Group] = {}
    seqs: dict[int, int] = {}
    for row in rows:
        handler = _HANDLERS.get(row["record_type"])
        if handler is None or row["group_id"] is None:
            continue
        group = groups.setdefault((row["partition"], row["group_id"]), _Group())
        for told in handler(group, row):
            seq = seqs[row["partition"]] = seqs.get(row["partition"], -1) + 1
            place = {"partition": row["partition"], "seq": seq, "ts": row["ts"], "group_id": row["group_id"]}
            yield {**_EMPTY, **place, **told}


def _member_row(group: _Group, rule: str, member: _Member, generation: int, reason: str | None = None) -> Transition:
    state = group.state or "Unknown"
    return {
        "from_state": state, "to_state": state, "generation": generation, "rule": rule, "reason": reason,
        "protocol_type": "consumer" if group.is_consumer else None, "cause_member_id": member.member_id,
        "cause_client_id": member.client_id, "cause_client_host": member.host,
    }  # fmt: skip


# -- classic groups ---------------------------------------------------------------------------------------------------


def _classic(group: _Group, row: Row) -> Iterator[Transition]:
    value = row["group_metadata"]
    before = group.members
    if value is None:
        if group.state is not None and not group.is_consumer:
            yield {"from_state": group.state, "to_state": "Dead", "rule": "DELETED", "members": []}
            group.state, group.members = None, {}
        return
    members = {
        each["member_id"]: _Member(each["member_id"], each["client_id"], each["client_host"], each["group_instance_id"])
        for each in value["members"] or ()
    }
    common = {name: value[name] for name in ("generation", "protocol_type", "protocol", "leader")}
    is_first, previous = group.state is None, group.state
    group.is_consumer = False
    state = "Stable" if members else "Empty"
    if is_first and not members:
        # Only that there is such a group is told.
        yield {**common, "to_state": "Empty", "rule": "LOADED", "members": []}
    else:
        if group.epoch != value["generation"] or is_first:
            yield {**common, "from_state": previous, "to_state": "PreparingRebalance", "rule": NOT_TOLD,
                   "generation": value["generation"] - 1, "members": list(before)}  # fmt: skip
            group.state = "PreparingRebalance"
        yield from _members_changed(group, before, members, value["generation"])
        rule = "LEADER_SYNCED" if members else "EMPTIED"
        yield {**common, "from_state": group.state, "to_state": state, "rule": rule, "members": list(members)}
    group.state, group.members, group.epoch = state, members, value["generation"]


def _members_changed(
    group: _Group, before: Mapping[str, _Member], now: Mapping[str, _Member], generation: int
) -> Iterator[Transition]:
    instances = {member.instance_id: member for member in before.values() if member.instance_id is not None}
    replaced = set()
    for member_id, member in now.items():
        if member_id in before:
            continue
        older = None if member.instance_id is None else instances.get(member.instance_id)
        if older is not None and older.member_id not in now:
            replaced.add(older.member_id)
            reason = f"instance id {member.instance_id}, before member {older.member_id}"
            yield _member_row(group, _REPLACED, member, generation, reason)
        else:
            yield _member_row(group, _ADDED, member, generation)
    for member_id, member in before.items():
        if member_id not in now and member_id not in replaced:
            yield _member_row(group, GONE, member, generation)


# -- consumer groups --------------------------------------------------------------------------------------------------


def _member_metadata(group: _Group, row: Row) -> Iterator[Transition]:
    member_id = row["member_id"]
    older = group.members.get(member_id)
    if row["other_value"] is None:
        if older is not None:
            del group.members[member_id]
            group.changed = (row["ts"], GONE, older)
            yield _member_row(group, GONE, older, group.epoch)
        return
    group.is_consumer = True
    told = msgspec.json.decode(row["other_value"])
    member = _Member(member_id, told.get("clientId"), told.get("clientHost"), told.get("instanceId"))
    group.members[member_id] = member
    if older is not None:
        member.epoch, member.is_stable = older.epoch, older.is_stable
        group.changed = (row["ts"], "MEMBER_UPDATED", member)
        return
    group.changed = (row["ts"], _ADDED, member)
    yield _member_row(group, _ADDED, member, group.epoch)


def _group_epoch(group: _Group, row: Row) -> Iterator[Transition]:
    if row["other_value"] is None:
        if group.is_consumer and group.state is not None:
            yield {"from_state": group.state, "to_state": "Dead", "rule": "DELETED", "members": []}
            group.state, group.members = None, {}
        return
    epoch = int(msgspec.json.decode(row["other_value"])["epoch"])
    group.is_consumer = True
    if epoch == group.epoch and group.state is not None:
        return
    changed = group.changed if group.changed is not None and group.changed[0] == row["ts"] else None
    rule, member = (changed[1], changed[2]) if changed is not None else ("EPOCH_BUMPED", None)
    previous, group.epoch = group.state, epoch
    group.state = "Assigning" if group.members else "Empty"
    yield {
        "from_state": previous, "to_state": group.state, "rule": rule, "generation": epoch,
        "protocol_type": "consumer", "members": list(group.members),
        "cause_member_id": None if member is None else member.member_id,
        "cause_client_id": None if member is None else member.client_id,
        "cause_client_host": None if member is None else member.host,
    }  # fmt: skip


def _target_epoch(group: _Group, row: Row) -> Iterator[Transition]:
    if row["other_value"] is None:
        return
    group.target_epoch = int(msgspec.json.decode(row["other_value"])["assignmentEpoch"])
    if group.state == "Assigning" and group.target_epoch == group.epoch:
        group.state = "Reconciling"
    yield from _reconciled(group)


def _current_assignment(group: _Group, row: Row) -> Iterator[Transition]:
    member = group.members.get(row["member_id"])
    if member is None or row["other_value"] is None:
        return
    told = msgspec.json.decode(row["other_value"])
    member.epoch, member.is_stable = told["memberEpoch"], told.get("state") == _STABLE_MEMBER
    yield from _reconciled(group)


def _reconciled(group: _Group) -> Iterator[Transition]:
    if group.state != "Reconciling":
        return
    if all(member.epoch == group.epoch and member.is_stable for member in group.members.values()):
        group.state = "Stable"
        yield {
            "from_state": "Reconciling", "to_state": "Stable", "rule": "RECONCILED", "generation": group.epoch,
            "protocol_type": "consumer", "members": list(group.members),
        }  # fmt: skip


_HANDLERS: Final = {
    "GroupMetadata": _classic,
    "ConsumerGroupMemberMetadata": _member_metadata,
    "ConsumerGroupMetadata": _group_epoch,
    "ConsumerGroupTargetAssignmentMetadata": _target_epoch,
    "ConsumerGroupCurrentMemberAssignment": _current_assignment,
}
