"""Where a member stands: its state and generation, and whether and why it has to join again (AbstractCoordinator)."""

from __future__ import annotations

from typing import NamedTuple

from coordinator_udf.members.classic.states import (
    NOT_JOINED,
    REBALANCING,
    STEADY,
    MemberEvent,
    MemberState,
    next_state,
)
from coordinator_udf.protocol.errors import error_name

NO_GENERATION_ID = -1


class Generation(NamedTuple):
    """A generation of the group and who the member is in it. ``protocol_name`` is the assignor that was chosen."""

    generation_id: int = NO_GENERATION_ID
    member_id: str = ""
    protocol_name: str | None = None

    @property
    def is_reset(self) -> bool:
        """Whether it was taken away; the member id may still be valid."""
        return self.generation_id == NO_GENERATION_ID and self.protocol_name is None

    @property
    def is_out(self) -> bool:
        """Whether what was assigned in it is lost."""
        return self.generation_id == NO_GENERATION_ID or not self.member_id


NO_GENERATION = Generation()


class ResyncTold(NamedTuple):
    """What a heartbeat's answer said of a new assignment: its number, and whether all has to be given up first."""

    epoch: int
    give_up_first: bool


class Membership:
    """State, generation and the wish to rejoin. What it says of them is changed by its methods alone.

    Attributes:
        state: the member's state.
        has_not_joined: whether it is one in which the coordinator doesn't count on heartbeats.
        generation: the member's generation.
        rejoin_needed: whether the next poll joins again.
        rejoin_reason: why the member joined last, or will join next: the last of several reasons; "" after a good
            SyncGroup.
        needs_join_prepare: whether onJoinPrepare has to run before the next JoinGroup.
        resync_told: a new assignment of the generation that the member has to ask for, or None.
        resync_epoch: how often the generation's assignment had been replaced when the member's was made.
        has_resynced: whether the last answer to SyncGroup brought a newer one than the member had.
    """

    def __init__(self) -> None:
        # Attributes, for they are looked at several times for each input.
        self.state = MemberState.UNJOINED
        self.has_not_joined = True
        self.generation = NO_GENERATION
        self.rejoin_needed = True
        self.rejoin_reason = ""
        self.needs_join_prepare = True
        self.resync_told: ResyncTold | None = None
        self.resync_epoch = 0
        self.has_resynced = False

    @property
    def generation_if_stable(self) -> Generation | None:
        """The generation, if the member is stable in it."""
        return self.generation if self.state in STEADY else None

    @property
    def is_rebalancing(self) -> bool:
        """Whether JoinGroup is sent and the assignment not here."""
        return self.state in REBALANCING

    def _go_on(self, event: MemberEvent) -> None:
        self.state = next_state(self.state, event)
        self.has_not_joined = self.state in NOT_JOINED

    def join_sent(self) -> None:
        """Takes note that JoinGroup is sent."""
        self._go_on(MemberEvent.JOIN_SENT)

    def join_answered(self, generation: Generation) -> None:
        """Takes the generation of a good JoinGroup answer.

        Raises:
            IllegalTransition: the member doesn't wait for one any more.
        """
        self._go_on(MemberEvent.JOIN_ANSWERED)
        self.generation = generation
        self._forget_resyncs()

    def sync_answered(self, resync_epoch: int = 0) -> None:
        """Takes note of a good SyncGroup answer.

        Raises:
            IllegalTransition: the member doesn't wait for one any more.
        """
        resynced = self.state is MemberState.RESYNCING
        self._go_on(MemberEvent.SYNC_ANSWERED)
        self.has_resynced = resync_epoch > self.resync_epoch
        self.resync_epoch = resync_epoch
        if not resynced:
            self.rejoin_reason = ""
            self.rejoin_needed = False

    def resync_announced(self, told: ResyncTold) -> None:
        """Takes a heartbeat's word that there is a new assignment of the generation."""
        self._go_on(MemberEvent.RESYNC_TOLD)
        self.resync_told = told

    def resync_begun(self) -> None:
        """Takes note that the member, as the leader, has another assignment for its generation."""
        self._go_on(MemberEvent.RESYNC_BEGUN)

    def resync_over(self) -> None:
        """Takes note that the member has the new assignment, or won't have it in this way."""
        self.resync_told = None
        if self.state is MemberState.RESYNCING:
            self._go_on(MemberEvent.RESYNC_FAILED)

    def _forget_resyncs(self) -> None:
        self.resync_told, self.resync_epoch, self.has_resynced = None, 0, False

    def member_id_given(self, member_id: str) -> None:
        """Takes the id that the coordinator wants the member to join with (KIP-394)."""
        self.generation = Generation(member_id=member_id)
        self.request_rejoin(f"need to re-join with the given member-id: {member_id}")

    def request_rejoin(self, reason: str) -> None:
        """Has the next poll join again."""
        self.rejoin_reason = reason
        self.rejoin_needed = True

    def request_rejoin_if_necessary(self, reason: str) -> None:
        """Has the next poll join again; an earlier reason stays."""
        if not self.rejoin_needed:
            self.request_rejoin(reason)

    def generation_lost(self, api: str, error: int, *, keep_member_id: bool) -> None:
        """Takes an answer's word that generation, and perhaps member id, are no longer valid."""
        self._reset(
            MemberEvent.GENERATION_LOST,
            f"encountered {error_name(error)} from {api} response",
            keep_member_id=keep_member_id,
        )

    def left(self) -> None:
        """Takes note that the member has left the group."""
        self._reset(MemberEvent.LEFT, "consumer pro-actively leaving the group")

    def overtaken(self) -> None:
        """Gives up an assignment whose generation is gone before the application polled."""
        member = self.generation
        shown = (
            f"Generation{{generationId={member.generation_id}, memberId='{member.member_id}', "
            f"protocol='{member.protocol_name or 'null'}'}}"
        )
        self._reset(
            MemberEvent.REBALANCE_OVERTAKEN,
            f"rebalance failed since the generation/state was modified by heartbeat thread to {shown}/{self.state} "
            "before the rebalance callback triggered",
        )

    def _reset(self, event: MemberEvent, reason: str, *, keep_member_id: bool = False) -> None:
        self._go_on(event)
        self.generation = Generation(member_id=self.generation.member_id) if keep_member_id else NO_GENERATION
        self._forget_resyncs()
        self.request_rejoin(reason)
        self.needs_join_prepare = True
