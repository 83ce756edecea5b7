"""When a simulated member does what it did in a log at another time than it was due."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from coordinator_udf.simulation.lateness import Timekeeper
from coordinator_udf.simulation.plan import MemberPlan


def test_of_two_requests_that_follow_each_other_the_second_goes_out_when_it_did() -> None:
    """A JoinGroup for an id, and the one with it: that was sent 60 ms after the id had come."""
    sent_ms = (("JoinGroup", 1_000, 1_000), ("JoinGroup", 1_040, 1_100), ("JoinGroup", 9_000, 9_500))
    timekeeper = Timekeeper(MemberPlan("c", 1, "g", ("t",), 0, sent_ms=sent_ms), 50_000, Random(0))
    assert [timekeeper.holds_up_ms("JoinGroup", 50_000 + at_ms) for at_ms in (1_000, 1_012, 9_100)] == [0, 88, 400]
    # It may have to be sent once more, as when a connection is lost.
    assert timekeeper.holds_up_ms("JoinGroup", 50_000 + 9_300) == 200
    # What follows when it has gone out is another one.
    assert timekeeper.holds_up_ms("JoinGroup", 50_000 + 9_120) == 380
    assert not timekeeper.knows_of("JoinGroup", 50_000 + 9_501)


def test_a_heartbeat_that_is_due_is_none_that_says_what_its_member_owns() -> None:
    """Unless there is no other: one may be due and say that, too."""
    plan = MemberPlan("c", 1, "g", ("t",), 0, {"heartbeat.interval.ms": 1_000}, beats_ms=(3_916, 3_936))
    assert Timekeeper(plan, 0, Random(0)).late_ms(3_929) == 7
    assert Timekeeper(replace(plan, acks_ms=(3_936,)), 0, Random(0)).late_ms(3_929) == -13
    alone = replace(plan, beats_ms=(3_936,), acks_ms=(3_936,))
    assert Timekeeper(alone, 0, Random(0)).late_ms(3_929) == 7


def test_who_joined_at_once_was_in_poll() -> None:
    """Who is known to have joined at once heard of a rebalance in poll, and not at work."""
    timekeeper = Timekeeper(MemberPlan("c", 1, "g", ("t",), 0, sent_ms=(("JoinGroup", 1_000, 1_003),)), 0, Random(0))
    assert timekeeper.is_known_to_send("JoinGroup", 1_001, 1_010)
    assert not timekeeper.is_known_to_send("JoinGroup", 1_001, 1_002)
    assert not timekeeper.is_known_to_send("SyncGroup", 1_001, 1_010)
    assert not timekeeper.is_known_to_send("JoinGroup", 5_000, 5_010)


def test_a_heartbeat_that_the_log_lacks_before_a_close_has_not_gone_out() -> None:
    """Whose heartbeat was due a moment before it left, and who sent none, was late with it."""
    plan = MemberPlan("c", 1, "g", ("t",), 0, {"heartbeat.interval.ms": 1_000}, close_at_ms=5_000, beats_ms=(3_900,))
    timekeeper = Timekeeper(plan, 0, Random(0))
    assert 4_900 + timekeeper.late_ms(4_900) > 5_000
    # One that is known, or due long before, has.
    assert timekeeper.late_ms(3_890) == 10
    assert timekeeper.late_ms(4_840) == 0
