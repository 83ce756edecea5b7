"""JoinGroup of classic groups. Source: GroupMetadataManager.classicGroupJoinToClassicGroup and what it calls."""

from __future__ import annotations

from coordinator_udf.groups.classic.answers import (
    JOIN_EXTENSIONS_VERSION,
    answer_join,
    answer_sync,
    generation_body,
    join_body,
)
from coordinator_udf.groups.classic.rebalance import (
    cancel_session,
    maybe_complete_join,
    prepare_rebalance,
    rebalance_or_complete_join,
    restart_session,
)
from coordinator_udf.groups.classic.stored_group import rewrite_group
from coordinator_udf.groups.context import Context
from coordinator_udf.groups.member_ids import new_member_id
from coordinator_udf.groups.model import timers
from coordinator_udf.groups.model.classic import ClassicGroup, Member, Parked, Protocols, ResyncMode
from coordinator_udf.groups.model.classic_states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    GroupEvent,
)
from coordinator_udf.groups.model.timers import TimerKey
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.requests import JoinGroup

#: From these versions on a new dynamic member must come back with the id it was given, and a static leader that comes
#: back into a stable group is told to skip the assignment (JoinGroupRequest).
_REQUIRES_KNOWN_MEMBER_ID = 4
_SUPPORTS_SKIPPING_ASSIGNMENT = 9


class Join:
    """One JoinGroup request on its way through a group."""

    __slots__ = ("body", "ctx", "group", "protocols", "row")

    def __init__(self, ctx: Context, group: ClassicGroup, row: Request, body: JoinGroup) -> None:
        self.ctx = ctx
        self.group = group
        self.row = row
        self.body = body
        self.protocols: Protocols = tuple([(p.name, p.metadata) for p in body.protocols])

    def handle(self) -> None:
        """Answers the request, parks it, or lets it begin a rebalance."""
        group, member_id = self.group, self.body.member_id
        if group.state is PREPARING_REBALANCE:
            member = group.members.get(member_id)
            # Nearly all joins are those of members that were there before the rebalance: they can only wait.
            if member is not None and self._can_wait(member):
                self._park(member)
                maybe_complete_join(self.ctx, group)
                return
        if not self._accepts():
            self.group.remove(self.body.member_id)
            cancel_session(self.ctx, self.group.group_id, self.body.member_id)
            self._refuse(Errors.GROUP_MAX_SIZE_REACHED, "")
        elif not self.body.member_id:
            self._new_member()
        else:
            self._known_member()

    def _can_wait(self, member: Member) -> bool:
        """Returns whether nothing is wrong with the join of a member while the group waits for joins."""
        group, body, instance = self.group, self.body, self.body.group_instance_id
        return (
            len(group.members) < self.ctx.settings.group_max_size
            and group.supports_protocols(body.protocol_type, self.protocols)
            and (instance is None or group.static_members.get(instance) == member.member_id)
        )

    def _accepts(self) -> bool:
        """Returns whether group.max.size leaves room.

        While members join, those that wait count, so the last ones are out.
        """
        group, member_id = self.group, self.body.member_id
        limit = self.ctx.settings.group_max_size
        if len(group.members) < limit or group.state in (EMPTY, DEAD):
            return True
        member = group.members.get(member_id)
        if group.state is PREPARING_REBALANCE:
            return (member is not None and member.awaiting_join is not None) or group.awaiting_join_count < limit
        return member is not None

    def _new_member_id(self) -> str:
        member_id = new_member_id(self.row, self.body.group_instance_id)
        if member_id in self.group.members or member_id in self.group.pending_join:
            # Proposed for the second time, by a log that isn't what a coordinator was really asked.
            return new_member_id(self.row._replace(proposed_member_id=None), self.body.group_instance_id)
        return member_id

    # -- a member without an id -----------------------------------------------------------------------------------

    def _new_member(self) -> None:
        group = self.group
        if group.state is DEAD:
            self._refuse(Errors.COORDINATOR_NOT_AVAILABLE, "")
        elif not group.supports_protocols(self.body.protocol_type, self.protocols):
            self._refuse(Errors.INCONSISTENT_GROUP_PROTOCOL, "")
        elif self.body.group_instance_id is not None:
            existing = group.static_members.get(self.body.group_instance_id)
            if existing is None:
                self._add(self._new_member_id())
            else:
                self._replace_static(existing)
        elif self.row.api_version >= _REQUIRES_KNOWN_MEMBER_ID:
            member_id = self._new_member_id()
            group.pending_join[member_id] = 1
            key = TimerKey(timers.SESSION, group.group_id, member_id)
            self.ctx.timers.arm(key, self.ctx.now_ms + self.body.session_timeout_ms)
            self._refuse(Errors.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(self._new_member_id())

    def _add(self, member_id: str) -> None:
        ctx, group, body = self.ctx, self.group, self.body
        if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
            group.new_member_added = True
        member = Member(
            member_id=member_id,
            group_instance_id=body.group_instance_id,
            client_id=self.row.client_id or "",
            client_host=self.row.client_host or "",
            rebalance_timeout_ms=self._rebalance_timeout_ms(),
            session_timeout_ms=body.session_timeout_ms,
            protocols=self.protocols,
            awaiting_join=self._parked(),
            is_new=True,
            client_extensions=self._understands_extensions(),
        )
        group.add(member, body.protocol_type)
        ctx.name_cause(member_id)
        ctx.note_member(group, GroupEvent.MEMBER_ADDED, member)
        # Nobody can tell a parked client that went away from one that waits, so a new member's join has an end.
        restart_session(ctx, group, member, ctx.settings.group_new_member_join_timeout_ms)
        instance = "null" if body.group_instance_id is None else body.group_instance_id
        reason = f"Adding new member {member_id} with group instance id {instance}; {self._client_reason()}"
        rebalance_or_complete_join(ctx, group, GroupEvent.MEMBER_ADDED, reason)

    # -- a member with an id --------------------------------------------------------------------------------------

    def _known_member(self) -> None:
        group, member_id, instance = self.group, self.body.member_id, self.body.group_instance_id
        if group.state is DEAD:
            self._refuse(Errors.COORDINATOR_NOT_AVAILABLE, member_id)
        elif not group.supports_protocols(self.body.protocol_type, self.protocols):
            self._refuse(Errors.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif member_id in group.pending_join:
            if instance is not None:
                # Kafka's coordinator throws here too: a pending member can't be static.
                raise ApiError(Errors.UNKNOWN_SERVER_ERROR, "a pending member can't have a group instance id")
            self._add(member_id)
        else:
            try:
                group.validate_member(member_id, instance)
            except ApiError as refused:
                self._refuse(refused.error, member_id, protocol_name=None)
                return
            self._rejoin(group.members[member_id])

    def _rejoin(self, member: Member) -> None:
        group, state = self.group, self.group.state
        if state is PREPARING_REBALANCE:
            self._park(member)
            maybe_complete_join(self.ctx, group)
            return
        changed = member.protocols != self.protocols
        is_leader = group.leader == member.member_id
        during = f"during {state}; {self._client_reason()}"
        if state is STABLE and is_leader:
            # A leader asks for a rebalance when something changed that no member's metadata shows, a topic say.
            reason = f"Leader {member.member_id} re-joining group {during}"
            self._update(member, GroupEvent.LEADER_REJOINED, reason)
        elif group.resync is not ResyncMode.NONE:
            reason = f"Member {member.member_id} joined again while members were told of a new assignment"
            self._update(member, GroupEvent.RESYNC_ABORTED, f"{reason}; {self._client_reason()}")
        elif group.sync_failure is not None and is_leader:
            reason = f"Leader {member.member_id} that could compute no assignment re-joining group {during}"
            self._update(member, GroupEvent.LEADER_REJOINED, reason)
        elif group.sync_failure is not None and not changed:
            # There is nothing to be told before the leader comes again, or the time for it is over.
            self._park(member)
        elif state in (COMPLETING_REBALANCE, STABLE):
            if changed:
                self._update(
                    member, GroupEvent.MEMBER_UPDATED, f"Updating metadata for member {member.member_id} {during}"
                )
            else:
                # Most likely the answer got lost: say again what the generation is.
                self._answer(generation_body(group, member.member_id, with_members=is_leader))
        else:
            self._refuse(Errors.UNKNOWN_MEMBER_ID, member.member_id)

    def _update(self, member: Member, event: GroupEvent, reason: str) -> None:
        self._park(member)
        rebalance_or_complete_join(self.ctx, self.group, event, reason)

    def _park(self, member: Member) -> None:
        member.client_extensions = self._understands_extensions()
        timeouts_ms = self._rebalance_timeout_ms(), self.body.session_timeout_ms
        self.group.update(member, self.protocols, *timeouts_ms, self._parked())

    def _parked(self) -> Parked:
        row = self.row
        return Parked(row.request_id, row.api_version, row.recorded_leader, row.recorded_protocol)

    def _rebalance_timeout_ms(self) -> int:
        return self.body.session_timeout_ms if self.row.api_version == 0 else self.body.rebalance_timeout_ms

    def _understands_extensions(self) -> bool:
        """Returns whether the member says that it understands the extensions, and they are served."""
        return (
            self.body.client_extensions
            and self.ctx.settings.group_classic_client_extensions_enable
            and self.row.api_version >= JOIN_EXTENSIONS_VERSION
        )

    # -- a static member that came back ---------------------------------------------------------------------------

    def _replace_static(self, old_id: str) -> None:
        ctx, group = self.ctx, self.group
        instance = self.body.group_instance_id or ""
        old_leader = group.leader
        self._fence(group.members[old_id])
        old = group.members[old_id]
        before = (old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
        member = group.rename_static(instance, old_id, self._new_member_id())
        cancel_session(ctx, group.group_id, old_id)
        restart_session(ctx, group, member)
        self._park(member)
        ctx.name_cause(member.member_id)
        told = f"instance id {instance}, before member {old_id}"
        ctx.note_member(group, GroupEvent.STATIC_MEMBER_REPLACED, member, told)
        if group.state is STABLE:
            if group.resync is not ResyncMode.NONE:
                reason = f"Static member {member.member_id} joined while members were told of a new assignment"
                rebalance_or_complete_join(ctx, group, GroupEvent.RESYNC_ABORTED, f"{reason}; {self._client_reason()}")
            elif group.protocol_name == group.select_protocol():
                if self._store_replacement(member):
                    self._welcome_back(member, old_leader)
                else:
                    member.client_extensions = old.client_extensions
                    self._revert_replacement(member, old_id, old_leader, before)
            else:
                reason = (
                    f"Group's selectedProtocol will change because static member {member.member_id} with instance id "
                    f"{instance} joined with change of protocol; {self._client_reason()}"
                )
                rebalance_or_complete_join(ctx, group, GroupEvent.STATIC_PROTOCOL_CHANGED, reason)
        elif group.state is COMPLETING_REBALANCE:
            # The leader may be computing an assignment for the old id, which would leave the new one without any.
            reason = (
                f"Updating metadata for static member {member.member_id} with instance id {instance}; "
                f"{self._client_reason()}"
            )
            prepare_rebalance(ctx, group, GroupEvent.STATIC_MEMBER_REPLACED, reason)
        else:
            maybe_complete_join(ctx, group)

    def _fence(self, member: Member) -> None:
        fenced = join_body(error=Errors.FENCED_INSTANCE_ID, member_id=member.member_id, protocol_name=None)
        answer_join(self.ctx, self.group, member, fenced)
        answer_sync(self.ctx, self.group, member, Errors.FENCED_INSTANCE_ID)

    def _store_replacement(self, member: Member) -> bool:
        """Writes the group with the static member's new id; whether the record was small enough."""
        ctx, group = self.ctx, self.group
        sizes = {m.member_id: m.assignment.size for m in group.members.values() if m.assignment is not None}
        if not ctx.fits_group(group, sizes):
            return False
        rewrite_group(ctx, group)
        return True

    def _revert_replacement(
        self, member: Member, old_id: str, old_leader: str | None, before: tuple[Protocols, int, int]
    ) -> None:
        group = self.group
        instance = self.body.group_instance_id or ""
        body = join_body(
            error=Errors.UNKNOWN_SERVER_ERROR,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=old_leader,
        )
        self._answer(body)
        group.update(member, *before, None)
        cancel_session(self.ctx, group.group_id, member.member_id)
        restart_session(self.ctx, group, group.rename_static(instance, member.member_id, old_id))

    def _welcome_back(self, member: Member, old_leader: str | None) -> None:
        group = self.group
        if self.row.api_version >= _SUPPORTS_SKIPPING_ASSIGNMENT:
            is_leader = group.leader == member.member_id
            body = generation_body(group, member.member_id, with_members=is_leader, skip_assignment=is_leader)
        else:
            # An old client that isn't named as the leader makes no assignment, which nobody would be given anyway.
            body = {**generation_body(group, member.member_id, with_members=False), "leader": old_leader}
        answer_join(self.ctx, group, member, body)

    # -- answers --------------------------------------------------------------------------------------------------

    def _client_reason(self) -> str:
        return f"client reason: {self.body.reason or 'not provided'}"

    def _refuse(self, error: Errors, member_id: str, protocol_name: str | None = "") -> None:
        self._answer(join_body(error=error, member_id=member_id, protocol_name=protocol_name))

    def _answer(self, body: dict[str, object]) -> None:
        row = self.row
        self.ctx.answer(
            row.request_id,
            "JoinGroup",
            row.api_version,
            body,
            group_id=row.group_id,
            member_id=str(body["memberId"]) or row.member_id,
        )
