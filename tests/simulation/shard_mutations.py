"""Takes checks out of the coordinator, to see what finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from coordinator_udf.assignors.uniform import UniformAssignor
from coordinator_udf.groups import timer_handlers
from coordinator_udf.groups.classic import heartbeat_leave, join, rebalance
from coordinator_udf.groups.consumer import change, heartbeat, membership
from coordinator_udf.groups.consumer.change import Change
from coordinator_udf.groups.consumer.reconcile import Goal, reconcile
from coordinator_udf.groups.model.classic import ClassicGroup, Member
from coordinator_udf.groups.model.consumer import ConsumerGroup, ConsumerMember
from coordinator_udf.groups.model.offsets import OffsetStore
from coordinator_udf.groups.model.timers import REBALANCE
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.shard import member_apis
from coordinator_udf.shard.in_virtual_time import VirtualTimeShard


def give_away_what_is_not_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(member: ConsumerMember, goal: Goal) -> ConsumerMember:
        return reconcile(member, replace(goal, partition_epoch=lambda *_: -1))

    monkeypatch.setattr(change, "reconcile", eager)


def take_commits_of_any_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator_udf.groups.offsets.commit.member_commit_check", lambda *_: None)


def never_answer_static_members_that_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join.Join, "_welcome_back", lambda *_: None)


def _answer_heartbeats(monkeypatch: pytest.MonkeyPatch, group: type, heartbeat: Callable[..., Errors]) -> None:
    """Has classic members' heartbeats in groups of one kind answered otherwise."""
    kinds = {**member_apis._KINDS, group: member_apis._KINDS[group]._replace(heartbeat=heartbeat)}
    monkeypatch.setattr(member_apis, "_KINDS", kinds)


def never_have_classic_members_join_a_consumer_group_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = member_apis._KINDS[ConsumerGroup]

    def content(*arguments: Any) -> Errors:
        told.heartbeat(*arguments)
        return Errors.NONE

    _answer_heartbeats(monkeypatch, ConsumerGroup, content)


def let_static_members_join_for_living_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def join_static(*arguments: Any, create: bool, classic: bool) -> ConsumerMember:
        # As members of the classic protocol may.
        return membership.join_static(*arguments, create=create, classic=True)

    monkeypatch.setattr(heartbeat, "join_static", join_static)


def never_fence_classic_members(monkeypatch: pytest.MonkeyPatch) -> None:
    told = member_apis._KINDS[ClassicGroup]

    def content(*arguments: Any) -> Errors:
        try:
            return told.heartbeat(*arguments)
        except ApiError as error:
            if error.error is Errors.FENCED_INSTANCE_ID:
                return Errors.NONE
            raise

    _answer_heartbeats(monkeypatch, ClassicGroup, content)


def never_give_an_instance_id_free(monkeypatch: pytest.MonkeyPatch) -> None:
    first: dict[tuple[str, str], str] = {}

    def join_static(change: Change, member_id: str, instance_id: str, *, create: bool, classic: bool) -> ConsumerMember:
        if create and first.setdefault((change.group.group_id, instance_id), member_id) != member_id:
            raise ApiError(Errors.UNRELEASED_INSTANCE_ID)
        return membership.join_static(change, member_id, instance_id, create=create, classic=classic)

    monkeypatch.setattr(heartbeat, "join_static", join_static)


def let_sessions_of_classic_members_end_in_spite_of_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_leave, "restart_session", lambda *_: None)


def let_sessions_of_consumer_members_end_in_spite_of_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    restart = heartbeat.ConsumerHeartbeat._restart_session

    def begin(self: heartbeat.ConsumerHeartbeat) -> None:
        if self.body.member_epoch == 0:
            restart(self)

    monkeypatch.setattr(heartbeat.ConsumerHeartbeat, "_restart_session", begin)


def remove_members_that_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Member, "has_satisfied_heartbeat", lambda _: False)


def take_heartbeats_of_any_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "check_epoch", lambda *_: None)


def take_heartbeats_of_any_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    told = member_apis._KINDS[ClassicGroup]

    def content(
        ctx: Any, group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> Errors:
        return told.heartbeat(ctx, group, member_id, group_instance_id, group.generation_id)

    _answer_heartbeats(monkeypatch, ClassicGroup, content)


def tell_who_is_fenced_to_join_again(monkeypatch: pytest.MonkeyPatch) -> None:
    validate = ClassicGroup.validate_member

    def milder(self: ClassicGroup, member_id: str, group_instance_id: str | None) -> None:
        try:
            validate(self, member_id, group_instance_id)
        except ApiError as error:
            raise ApiError(Errors.UNKNOWN_MEMBER_ID) from error

    monkeypatch.setattr(ClassicGroup, "validate_member", milder)


def let_no_consumer_member_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: heartbeat.ConsumerHeartbeat) -> None:
        raise ApiError(Errors.UNKNOWN_MEMBER_ID)

    monkeypatch.setattr(heartbeat.ConsumerHeartbeat, "_leave", refuse)


def begin_generations_with_the_same_number(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = rebalance._begin_generation

    def anew(ctx: Any, group: ClassicGroup, *arguments: Any) -> None:
        group.generation_id = max(0, group.generation_id - 1)
        begin(ctx, group, *arguments)

    monkeypatch.setattr(rebalance, "_begin_generation", anew)


def wait_on_when_the_last_missing_member_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_leave, "maybe_complete_join", lambda *_: None)


def end_join_phases_without_who_is_about_to_join(monkeypatch: pytest.MonkeyPatch) -> None:
    def joined(self: ClassicGroup) -> bool:
        return len(self.members) == self.awaiting_join_count

    monkeypatch.setattr(ClassicGroup, "has_all_members_joined", joined)


def give_one_member_of_two_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assign = UniformAssignor.assign

    def to_first(self: UniformAssignor, spec: Any) -> Any:
        given = assign(self, spec)
        first, second, *_ = sorted([*given, "", ""], reverse=True)
        if second:
            both = given[first], given[second]
            ids = {topic_id for target in both for topic_id in target}
            given = {
                **given,
                first: {one: tuple(sorted(n for it in both for n in it.get(one, ()))) for one in ids},
                second: {},
            }
        return given

    monkeypatch.setattr(UniformAssignor, "assign", to_first)


def load_without_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = VirtualTimeShard.load

    def partial(self: VirtualTimeShard, now_ms: int) -> None:
        whole(self, now_ms)
        self.shard.store.offsets = OffsetStore()

    monkeypatch.setattr(VirtualTimeShard, "load", partial)


def let_anybody_into_classic_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join.Join, "_accepts", lambda *_: True)


def let_anybody_into_consumer_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "check_room", lambda *_: None)


def keep_a_place_of_each_classic_group_free(monkeypatch: pytest.MonkeyPatch) -> None:
    accepts = join.Join._accepts

    def with_one_less(self: join.Join) -> bool:
        limit = self.ctx.settings.group_max_size
        return accepts(self) and (self.body.member_id in self.group.members or len(self.group.members) < limit - 1)

    monkeypatch.setattr(join.Join, "_accepts", with_one_less)


def keep_a_place_of_each_consumer_group_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_one_less(ctx: Any, group: ConsumerGroup, member_id: str) -> None:
        if member_id not in group.members and len(group.members) >= ctx.settings.group_consumer_max_size - 1:
            raise ApiError(Errors.GROUP_MAX_SIZE_REACHED)

    monkeypatch.setattr(heartbeat, "check_room", with_one_less)


def never_take_another_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    wishes = heartbeat.ConsumerHeartbeat._wishes

    def first(self: heartbeat.ConsumerHeartbeat, member: ConsumerMember) -> ConsumerMember:
        said = wishes(self, member)
        return (
            said
            if self.body.member_epoch == 0
            else msgspec.structs.replace(said, subscribed_topic_names=member.subscribed_topic_names)
        )

    monkeypatch.setattr(heartbeat.ConsumerHeartbeat, "_wishes", first)


def let_members_stay_that_give_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: Any = timer_handlers._HANDLERS[ConsumerGroup]
    monkeypatch.setitem(kept, (REBALANCE, True), lambda *_: None)
