"""A check that somebody takes out of the coordinator or of a member is found in a few worlds, and shown in short."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

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
from coordinator_udf.members.classic.heartbeat_timers import HeartbeatTimers
from coordinator_udf.members.classic.leave import Leaving
from coordinator_udf.members.classic.membership import Membership
from coordinator_udf.members.classic.rebalance import Rebalance
from coordinator_udf.members.classic.subscription_changes import SubscriptionChanges
from coordinator_udf.members.consumer.commit_request_manager import CommitRequestManager
from coordinator_udf.members.consumer.futures import CompletableFuture
from coordinator_udf.members.consumer.heartbeat_request_manager import HeartbeatRequestManager
from coordinator_udf.members.consumer.reconciler import Reconciler
from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.shard import member_apis
from coordinator_udf.shard.in_virtual_time import VirtualTimeShard
from coordinator_udf.simulation.invariants import KAFKAS_OWN
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.shrink import event_list, run, shrink
from jobs.search_worlds import app as search_app
from jobs.simulate_groups import app
from tests.conftest import ROOT

#: A mutation is to be found in a thousand worlds; each of these is in so many.
_SEEDS = 20


def _give_away_what_is_not_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(member: ConsumerMember, goal: Goal) -> ConsumerMember:
        return reconcile(member, replace(goal, partition_epoch=lambda *_: -1))

    monkeypatch.setattr(change, "reconcile", eager)


def _take_commits_of_any_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator_udf.groups.offsets.commit.member_commit_check", lambda *_: None)


def _stay_when_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(self: HeartbeatRequestManager, code: int, message: str | None) -> None:
        """Makes nothing of an error."""

    monkeypatch.setattr(HeartbeatRequestManager, "_on_error", deaf)


def _never_send_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: HeartbeatTimers) -> bool:
        return False

    monkeypatch.setattr(HeartbeatTimers, "is_heartbeat_due", never)


def _never_answer_static_members_that_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join.Join, "_welcome_back", lambda *_: None)


def _reconcile_while_reconciling(monkeypatch: pytest.MonkeyPatch) -> None:
    once = Reconciler.maybe_reconcile

    def anew(self: Reconciler, *, can_commit: bool) -> None:
        was_in_progress, self._in_progress = self._in_progress, False
        once(self, can_commit=can_commit)
        self._in_progress = self._in_progress or was_in_progress

    monkeypatch.setattr(Reconciler, "maybe_reconcile", anew)


def _answer_heartbeats(monkeypatch: pytest.MonkeyPatch, group: type, heartbeat: Callable[..., Errors]) -> None:
    """Has classic members' heartbeats in groups of one kind answered otherwise."""
    kinds = {**member_apis._KINDS, group: member_apis._KINDS[group]._replace(heartbeat=heartbeat)}
    monkeypatch.setattr(member_apis, "_KINDS", kinds)


def _never_have_classic_members_join_a_consumer_group_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = member_apis._KINDS[ConsumerGroup]

    def content(*arguments: Any) -> Errors:
        told.heartbeat(*arguments)
        return Errors.NONE

    _answer_heartbeats(monkeypatch, ConsumerGroup, content)


def _let_static_members_join_for_living_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def join_static(*arguments: Any, create: bool, classic: bool) -> ConsumerMember:
        # As members of the classic protocol may.
        return membership.join_static(*arguments, create=create, classic=True)

    monkeypatch.setattr(heartbeat, "join_static", join_static)


def _never_fence_classic_members(monkeypatch: pytest.MonkeyPatch) -> None:
    told = member_apis._KINDS[ClassicGroup]

    def content(*arguments: Any) -> Errors:
        try:
            return told.heartbeat(*arguments)
        except ApiError as error:
            if error.error is Errors.FENCED_INSTANCE_ID:
                return Errors.NONE
            raise

    _answer_heartbeats(monkeypatch, ClassicGroup, content)


def _never_give_an_instance_id_free(monkeypatch: pytest.MonkeyPatch) -> None:
    first: dict[tuple[str, str], str] = {}

    def join_static(change: Change, member_id: str, instance_id: str, *, create: bool, classic: bool) -> ConsumerMember:
        if create and first.setdefault((change.group.group_id, instance_id), member_id) != member_id:
            raise ApiError(Errors.UNRELEASED_INSTANCE_ID)
        return membership.join_static(change, member_id, instance_id, create=create, classic=classic)

    monkeypatch.setattr(heartbeat, "join_static", join_static)


def _let_sessions_of_classic_members_end_in_spite_of_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_leave, "restart_session", lambda *_: None)


def _let_sessions_of_consumer_members_end_in_spite_of_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    restart = heartbeat.ConsumerHeartbeat._restart_session

    def begin(self: heartbeat.ConsumerHeartbeat) -> None:
        if self.body.member_epoch == 0:
            restart(self)

    monkeypatch.setattr(heartbeat.ConsumerHeartbeat, "_restart_session", begin)


def _remove_members_that_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Member, "has_satisfied_heartbeat", lambda _: False)


def _take_heartbeats_of_any_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "check_epoch", lambda *_: None)


def _take_heartbeats_of_any_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    told = member_apis._KINDS[ClassicGroup]

    def content(
        ctx: Any, group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> Errors:
        return told.heartbeat(ctx, group, member_id, group_instance_id, group.generation_id)

    _answer_heartbeats(monkeypatch, ClassicGroup, content)


def _tell_who_is_fenced_to_join_again(monkeypatch: pytest.MonkeyPatch) -> None:
    validate = ClassicGroup.validate_member

    def milder(self: ClassicGroup, member_id: str, group_instance_id: str | None) -> None:
        try:
            validate(self, member_id, group_instance_id)
        except ApiError as error:
            raise ApiError(Errors.UNKNOWN_MEMBER_ID) from error

    monkeypatch.setattr(ClassicGroup, "validate_member", milder)


def _let_no_consumer_member_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: heartbeat.ConsumerHeartbeat) -> None:
        raise ApiError(Errors.UNKNOWN_MEMBER_ID)

    monkeypatch.setattr(heartbeat.ConsumerHeartbeat, "_leave", refuse)


def _begin_generations_with_the_same_number(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = rebalance._begin_generation

    def anew(ctx: Any, group: ClassicGroup, *arguments: Any) -> None:
        group.generation_id = max(0, group.generation_id - 1)
        begin(ctx, group, *arguments)

    monkeypatch.setattr(rebalance, "_begin_generation", anew)


def _stay_when_a_classic_application_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeartbeatTimers, "is_poll_interval_over", lambda _: False)


def _stay_when_a_consumer_application_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = HeartbeatRequestManager.poll

    def patient(self: HeartbeatRequestManager, *arguments: Any) -> Any:
        self.poll_timer.reset(10**9)
        return poll(self, *arguments)

    monkeypatch.setattr(HeartbeatRequestManager, "poll", patient)


def _wait_on_when_the_last_missing_member_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_leave, "maybe_complete_join", lambda *_: None)


def _give_one_member_of_two_all(monkeypatch: pytest.MonkeyPatch) -> None:
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


def _load_without_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = VirtualTimeShard.load

    def partial(self: VirtualTimeShard, now_ms: int) -> None:
        whole(self, now_ms)
        self.shard.store.offsets = OffsetStore()

    monkeypatch.setattr(VirtualTimeShard, "load", partial)


def _let_anybody_into_classic_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join.Join, "_accepts", lambda *_: True)


def _let_anybody_into_consumer_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "check_room", lambda *_: None)


def _keep_a_place_of_each_classic_group_free(monkeypatch: pytest.MonkeyPatch) -> None:
    accepts = join.Join._accepts

    def with_one_less(self: join.Join) -> bool:
        limit = self.ctx.settings.group_max_size
        return accepts(self) and (self.body.member_id in self.group.members or len(self.group.members) < limit - 1)

    monkeypatch.setattr(join.Join, "_accepts", with_one_less)


def _keep_a_place_of_each_consumer_group_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_one_less(ctx: Any, group: ConsumerGroup, member_id: str) -> None:
        if member_id not in group.members and len(group.members) >= ctx.settings.group_consumer_max_size - 1:
            raise ApiError(Errors.GROUP_MAX_SIZE_REACHED)

    monkeypatch.setattr(heartbeat, "check_room", with_one_less)


def _never_take_another_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    wishes = heartbeat.ConsumerHeartbeat._wishes

    def first(self: heartbeat.ConsumerHeartbeat, member: ConsumerMember) -> ConsumerMember:
        said = wishes(self, member)
        return (
            said
            if self.body.member_epoch == 0
            else msgspec.structs.replace(said, subscribed_topic_names=member.subscribed_topic_names)
        )

    monkeypatch.setattr(heartbeat.ConsumerHeartbeat, "_wishes", first)


def _never_join_again_for_another_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    joining = SubscriptionChanges.joining

    def once(self: SubscriptionChanges) -> frozenset[str]:
        return joining(self) if self._joined_with is None else self._joined_with

    monkeypatch.setattr(SubscriptionChanges, "joining", once)


def _close_without_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leaving, "_is_to_be_told", lambda *_: False)


def _keep_the_generation_that_the_coordinator_knows_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "generation_lost", lambda *_, **__: None)


def _go_on_with_what_an_earlier_stay_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reconciler, "_maybe_abort", lambda _: False)


def _let_members_stay_that_give_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: Any = timer_handlers._HANDLERS[ConsumerGroup]
    monkeypatch.setitem(kept, (REBALANCE, True), lambda *_: None)


def _give_up_without_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def through(*_: Any) -> Generator[Any, Any, bool]:
        yield from ()
        return True

    monkeypatch.setattr(Rebalance, "_commit_before", through)


def _reconcile_without_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    done: CompletableFuture[None] = CompletableFuture.completed(None)
    monkeypatch.setattr(CommitRequestManager, "maybe_commit_before_rebalance", lambda *_: done)


@pytest.mark.parametrize(
    ("mutate", "scenario", "kinds"),
    [
        (_give_away_what_is_not_revoked, "rolling-deploy", {"two owners"}),
        (_take_commits_of_any_epoch, "slow-links", {"overtaken commit"}),
        (_stay_when_fenced, "network-cut", {"unsettled", "waiting"}),
        (_never_send_heartbeats, "rolling-deploy", {"unsettled", "waiting"}),
        (_never_answer_static_members_that_come_back, "static-members", {"unsettled", "waiting"}),
        (_give_away_what_is_not_revoked, "micro-batches", {"two owners"}),
        (_reconcile_while_reconciling, "slow-callbacks", {"wrong callback"}),
        (_never_have_classic_members_join_a_consumer_group_again, "mixed-protocols", {"unsettled", "waiting"}),
        (_let_static_members_join_for_living_ones, "surge-deploy", {"two owners"}),
        (_never_fence_classic_members, "surge-deploy", {"not fenced"}),
        # Its processes are started again and again, and none lives at the end.
        (_never_give_an_instance_id_free, "surge-deploy", {"waiting", "unsettled"}),
        (_let_anybody_into_classic_groups, "full-groups", {"too many members"}),
        (_let_anybody_into_consumer_groups, "full-groups", {"too many members"}),
        (_keep_a_place_of_each_classic_group_free, "full-groups", {"turned away"}),
        (_keep_a_place_of_each_consumer_group_free, "full-groups", {"turned away", "waiting"}),
        (_never_take_another_subscription, "removed-and-resubscribed", {"unsettled"}),
        # A member joins again and again for what it never asks for.
        (_never_join_again_for_another_subscription, "removed-and-resubscribed", {"waiting", "unsettled"}),
        # Who is removed in spite of heartbeats soon joins again: in the end nothing is wrong.
        (_let_sessions_of_classic_members_end_in_spite_of_heartbeats, "crash-loop", {"session cut short"}),
        (_let_sessions_of_consumer_members_end_in_spite_of_heartbeats, "static-members", {"session cut short"}),
        (_remove_members_that_wait_for_others, "slow-callbacks", {"session cut short"}),
        (_take_heartbeats_of_any_epoch, "misbehaving", {"not fenced"}),
        (_take_heartbeats_of_any_generation, "misbehaving", {"not fenced"}),
        (_tell_who_is_fenced_to_join_again, "surge-deploy", {"not fenced"}),
        # Its partitions have no owner until its session is over, and then they have one.
        (_let_no_consumer_member_leave, "rolling-deploy", {"wrongly refused"}),
        (_begin_generations_with_the_same_number, "rolling-deploy", {"falling number"}),
        (_stay_when_a_classic_application_stands_still, "slow-consumer", {"poll interval exceeded"}),
        (_stay_when_a_consumer_application_stands_still, "slow-consumer", {"poll interval exceeded"}),
        (_wait_on_when_the_last_missing_member_leaves, "slow-consumer", {"waited for nobody"}),
        (_give_one_member_of_two_all, "rolling-deploy", {"uneven"}),
        # Its partitions have an owner again when its session is over.
        (_close_without_leaving, "rolling-deploy", {"didn't leave"}),
        # Whoever has them next reads some records again.
        (_give_up_without_a_commit, "rolling-deploy", {"not committed"}),
        (_reconcile_without_a_commit, "rolling-deploy", {"not committed"}),
        # Where applications commit, those of commits tell a member the same.
        (_keep_the_generation_that_the_coordinator_knows_no_more, "offsets-elsewhere", {"unsettled", "waiting"}),
        (_go_on_with_what_an_earlier_stay_began, "offsets-elsewhere", {"unsettled", "wrong callback"}),
        (_let_members_stay_that_give_nothing_up, "misbehaving", {"phase too long"}),
        # The next commits are higher, so that nothing is missing in the end.
        (_load_without_offsets, "fleet", {"lost commit"}),
    ],
)
def test_a_missing_check_is_found(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None], scenario: str, kinds: set[str]
) -> None:
    mutate(monkeypatch)
    family = read_scenario(ROOT / "conf" / "scenarios" / f"{scenario}.toml")
    found = (violation for seed in range(_SEEDS) for violation in run(draw_world(family, seed), seed))
    assert next(violation.kind for violation in found if violation.kind not in KAFKAS_OWN) in kinds


def test_a_violation_is_shown_by_the_fewest_events(monkeypatch: pytest.MonkeyPatch) -> None:
    _give_away_what_is_not_revoked(monkeypatch)
    plan = draw_world(read_scenario(ROOT / "conf" / "scenarios" / "rolling-deploy.toml"), 0)
    short = shrink(plan, 0, "two owners")
    # Two members suffice: one that has everything, and one that is given some of it at once.
    assert len(short.members) == 2
    assert [line.split("s  ", 1)[1].split(",")[0] for line in event_list(short)][1:] == [
        f"{member.name} starts" for member in sorted(short.members, key=lambda member: member.start_ms)
    ]
    assert any(violation.kind == "two owners" for violation in run(short, 0))


def test_the_job_replays_one_world() -> None:
    scenario = str(ROOT / "conf" / "scenarios" / "crash-loop.toml")
    result: Any = CliRunner().invoke(app, [scenario, "--replay", "3"])
    assert result.exit_code == 0, result.output
    assert "crash-loop, seed 3: 0 violations" in result.output


def test_a_search_tells_the_fewest_events_and_the_command_that_shows_them_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _give_away_what_is_not_revoked(monkeypatch)
    monkeypatch.chdir(ROOT)
    scenario = "conf/scenarios/rolling-deploy.toml"
    arguments = [scenario, "--seeds", "0:1", "--done", str(tmp_path / "done")]
    result: Any = CliRunner().invoke(search_app, arguments)
    assert result.exit_code == 1, result.output
    command = f"jobs/simulate_groups.py {scenario} --replay 0"
    assert f"{command})" in next(line for line in result.stdout.splitlines() if "two owners in g" in line)
    fewest = result.stdout[result.stdout.index("rolling-deploy, seed 0, in as few events") :].splitlines()
    assert fewest[0].endswith(f"{command}):")
    assert fewest[1].startswith("two owners: ")
    assert sum("starts, in the group g848 (consumer)" in line for line in fewest) == 2

    # What it says to type tells the same.
    again: Any = CliRunner().invoke(app, [scenario, "--replay", "0"])
    assert again.exit_code == 1
    assert again.stdout.splitlines()[1:] == fewest[1:]
