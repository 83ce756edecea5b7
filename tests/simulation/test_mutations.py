"""A check that somebody takes out of the coordinator or of a member is found in a few worlds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator_udf.simulation.invariants import KAFKAS_OWN
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.shrink import run
from tests.conftest import ROOT
from tests.simulation import member_mutations, shard_mutations

#: A mutation is to be found in a thousand worlds; each of these is in so many.
_SEEDS = 20


@pytest.mark.parametrize(
    ("mutate", "scenario", "kinds"),
    [
        (shard_mutations.give_away_what_is_not_revoked, "rolling-deploy", {"two owners"}),
        (shard_mutations.take_commits_of_any_epoch, "slow-links", {"overtaken commit"}),
        (member_mutations.stay_when_fenced, "network-cut", {"unsettled", "waiting"}),
        # Commits keep its session up; it hears of no rebalance.
        (member_mutations.never_send_heartbeats, "rolling-deploy", {"sent too seldom"}),
        (member_mutations.send_heartbeats_once_in_a_while, "topic-growth", {"sent too seldom"}),
        (shard_mutations.never_answer_static_members_that_come_back, "static-members", {"unsettled", "waiting"}),
        (shard_mutations.give_away_what_is_not_revoked, "micro-batches", {"two owners"}),
        (member_mutations.reconcile_while_reconciling, "slow-callbacks", {"wrong callback"}),
        (
            shard_mutations.never_have_classic_members_join_a_consumer_group_again,
            "mixed-protocols",
            {"unsettled", "waiting"},
        ),
        (shard_mutations.let_static_members_join_for_living_ones, "surge-deploy", {"two owners"}),
        (shard_mutations.never_fence_classic_members, "surge-deploy", {"not fenced"}),
        # Its processes are started again and again, and none lives at the end.
        (shard_mutations.never_give_an_instance_id_free, "surge-deploy", {"waiting", "unsettled"}),
        (shard_mutations.let_anybody_into_classic_groups, "full-groups", {"too many members"}),
        (shard_mutations.let_anybody_into_consumer_groups, "full-groups", {"too many members"}),
        (shard_mutations.keep_a_place_of_each_classic_group_free, "full-groups", {"turned away"}),
        (shard_mutations.keep_a_place_of_each_consumer_group_free, "full-groups", {"turned away", "waiting"}),
        (shard_mutations.never_take_another_subscription, "removed-and-resubscribed", {"unsettled"}),
        # A member joins again and again for what it never asks for.
        (
            member_mutations.never_join_again_for_another_subscription,
            "removed-and-resubscribed",
            {"sent without cause"},
        ),
        # Who is removed in spite of heartbeats soon joins again: in the end nothing is wrong.
        (
            shard_mutations.let_sessions_of_classic_members_end_in_spite_of_heartbeats,
            "crash-loop",
            {"session cut short"},
        ),
        (
            shard_mutations.let_sessions_of_consumer_members_end_in_spite_of_heartbeats,
            "static-members",
            {"session cut short"},
        ),
        (shard_mutations.remove_members_that_wait_for_others, "slow-callbacks", {"session cut short"}),
        (shard_mutations.take_heartbeats_of_any_epoch, "misbehaving", {"not fenced"}),
        (shard_mutations.take_heartbeats_of_any_generation, "misbehaving", {"not fenced"}),
        (shard_mutations.tell_who_is_fenced_to_join_again, "surge-deploy", {"not fenced"}),
        # Its partitions have no owner until its session is over, and then they have one.
        (shard_mutations.let_no_consumer_member_leave, "rolling-deploy", {"wrongly refused"}),
        (shard_mutations.begin_generations_with_the_same_number, "rolling-deploy", {"falling number"}),
        (member_mutations.stay_when_a_classic_application_stands_still, "slow-consumer", {"poll interval exceeded"}),
        (member_mutations.stay_when_a_consumer_application_stands_still, "slow-consumer", {"poll interval exceeded"}),
        (shard_mutations.wait_on_when_the_last_missing_member_leaves, "slow-consumer", {"waited for nobody"}),
        (shard_mutations.end_join_phases_without_who_is_about_to_join, "misbehaving", {"didn't wait"}),
        (shard_mutations.give_one_member_of_two_all, "rolling-deploy", {"uneven"}),
        # Its partitions have an owner again when its session is over.
        (member_mutations.close_without_leaving, "rolling-deploy", {"didn't leave"}),
        # Whoever has them next reads some records again.
        (member_mutations.give_up_without_a_commit, "rolling-deploy", {"not committed"}),
        (member_mutations.reconcile_without_a_commit, "rolling-deploy", {"not committed"}),
        # Where applications commit, those of commits tell a member the same.
        (
            member_mutations.keep_the_generation_that_the_coordinator_knows_no_more,
            "offsets-elsewhere",
            {"unsettled", "waiting"},
        ),
        (member_mutations.go_on_with_what_an_earlier_stay_began, "offsets-elsewhere", {"unsettled", "wrong callback"}),
        (shard_mutations.let_members_stay_that_give_nothing_up, "misbehaving", {"phase too long"}),
        # What costs its client and its coordinator, and does nothing else.
        (member_mutations.commit_with_each_poll, "rolling-deploy", {"sent without cause"}),
        (member_mutations.commit_for_applications_that_do_so_themselves, "offsets-elsewhere", {"sent without cause"}),
        (member_mutations.try_again_without_a_pause, "fleet", {"sent without cause"}),
        (member_mutations.tell_members_that_their_partitions_are_lost, "rolling-deploy", {"wrong callback"}),
        (
            member_mutations.tell_applications_that_close_that_their_partitions_are_lost,
            "rolling-deploy",
            {"wrong callback"},
        ),
        (member_mutations.go_on_though_another_process_has_the_instance_id, "surge-deploy", {"error not told"}),
        (member_mutations.try_again_whatever_the_error, "full-groups", {"error not told"}),
        # The others have its partitions for as long as it is away, which static members are there to prevent.
        (member_mutations.leave_as_a_static_member, "static-members", {"sent without cause"}),
        (member_mutations.leave_for_good_as_a_static_consumer, "static-members", {"sent without cause"}),
        (member_mutations.ask_for_the_coordinator_on_and_on, "migration", {"sent without cause"}),
        (member_mutations.send_heartbeats_twice_as_often, "rolling-deploy", {"sent without cause"}),
        (member_mutations.send_classic_heartbeats_half_as_often, "rolling-deploy", {"sent too seldom"}),
        (member_mutations.send_consumer_heartbeats_half_as_often, "rolling-deploy", {"sent too seldom"}),
        (member_mutations.commit_in_every_third_interval, "rolling-deploy", {"sent too seldom"}),
        (member_mutations.tell_applications_what_is_tried_again, "network-cut", {"wrong error"}),
        (member_mutations.stop_heartbeats_without_a_word_when_fenced, "surge-deploy", {"error not told"}),
        (member_mutations.call_back_to_give_up_nothing, "crash-loop", {"wrong callback"}),
        # The next commits are higher, so that nothing is missing in the end.
        (shard_mutations.load_without_offsets, "fleet", {"lost commit"}),
        (shard_mutations.load_without_offsets, "several-shards", {"lost commit"}),
    ],
)
def test_a_missing_check_is_found(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None], scenario: str, kinds: set[str]
) -> None:
    mutate(monkeypatch)
    family = read_scenario(ROOT / "conf" / "scenarios" / f"{scenario}.toml")
    found = (violation for seed in range(_SEEDS) for violation in run(draw_world(family, seed), seed))
    assert next(violation.kind for violation in found if violation.kind not in KAFKAS_OWN) in kinds
