"""What members of Kafka itself do to be found among a world's violations: each with the fewest events that show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator_udf.protocol.errors import ApiError, Errors
from coordinator_udf.simulation.events import topic_id
from coordinator_udf.simulation.history import History, KnownMembership
from coordinator_udf.simulation.invariants import (
    CROSSED_ASSIGNMENT,
    FORGOTTEN_OWNER,
    KEPT_UNAWARES,
    LATE_COMMIT,
    LOST_JOIN,
    OLD_RETRY,
    violations,
)
from coordinator_udf.simulation.plan import Cut, Hang, MemberPlan, NetworkPlan, Slow, Stall, TopicPlan, WorldPlan
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.server_errors import TOO_EARLY
from coordinator_udf.simulation.short_polls import SHORT_POLL
from coordinator_udf.simulation.violation import Violation
from coordinator_udf.simulation.world import World
from coordinator_udf.simulation.wrong_callbacks import GIVEN_UP_TWICE
from tests.conftest import ROOT
from tests.simulation.short_sessions import SHORT_SESSIONS

_CLASSIC: dict[str, Any] = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000}
#: Without automatic commits a member takes partitions over while its application does something else.
_CONSUMER: dict[str, Any] = {
    "group.protocol": "consumer", "max.poll.interval.ms": 20_000, "enable.auto.commit": False,
}  # fmt: skip
_KIP_848: dict[str, Any] = {"group.protocol": "consumer"}


def _world(*members: MemberPlan, end_ms: int) -> WorldPlan:
    return WorldPlan(members, (TopicPlan("t", 4),), end_ms, SHORT_SESSIONS, NetworkPlan((1, 1)))


def _kinds(plan: WorldPlan) -> set[str]:
    return {violation.kind for violation in violations(World(plan, 1).run())}


def test_partitions_that_a_member_was_yet_to_be_told_of_are_not_among_those_that_it_loses() -> None:
    killed = MemberPlan("killed", 1, "g", ("t",), 0, _CONSUMER, crash_at_ms=22_000)
    stalled = MemberPlan("stalled", 1, "g", ("t",), 1_000, _CONSUMER, stalls=(Stall(20_000, 40_000),))
    assert _kinds(_world(killed, stalled, end_ms=120_000)) == {KEPT_UNAWARES}
    # It has all of them to lose if it polls in between.
    twice = replace(stalled, stalls=(Stall(20_000, 16_000), Stall(37_000, 30_000)))
    assert _kinds(_world(killed, twice, end_ms=120_000)) == set()


@pytest.mark.parametrize("kind", ["stalls", "hangs"])
def test_a_commit_before_partitions_are_taken_over_leaves_time_for_the_application_to_stand_still(kind: str) -> None:
    # The poll at 32.4 s commits; 0.1 s later the answer is here, and the thread takes the killed one's partitions over.
    commits = {"group.protocol": "consumer", "max.poll.interval.ms": 20_000}
    killed = MemberPlan("killed", 1, "g", ("t",), 0, commits, crash_at_ms=22_000)

    def kinds(at_ms: int) -> set[str]:
        still: dict[str, Any] = {kind: (Stall(at_ms, 30_000) if kind == "stalls" else Hang(at_ms, 30_000),)}
        left = MemberPlan("left", 1, "g", ("t",), 1_000, commits, **still)
        plan = replace(_world(killed, left, end_ms=120_000), topics=(TopicPlan("t", 4, records_s=2.0),))
        return _kinds(replace(plan, network=NetworkPlan((50, 50))))

    assert kinds(32_440) == {KEPT_UNAWARES}
    # Before that it hears of no new partitions, after that the application was told of them.
    assert kinds(31_000) == set()
    assert kinds(33_000) == set()


def test_a_member_that_is_closed_as_its_callback_ends_is_to_give_up_again_what_it_has_just_given_up() -> None:
    def events(protocol: str, close_at_ms: int) -> list[Violation]:
        properties = {"group.protocol": protocol, "heartbeat.interval.ms": 1_000} if protocol == "classic" else _KIP_848
        closed = MemberPlan("closed", 1, "g", ("t",), 0, properties, callback_ms=3_000, close_at_ms=close_at_ms)
        comes = MemberPlan("comes", 1, "g", ("t",), 20_000, properties)
        return violations(World(_world(closed, comes, end_ms=120_000), 1).run())

    (violation,) = events("consumer", 22_000)
    assert violation.kind == GIVEN_UP_TWICE
    assert violation.detail == "closed/1 is to give up t-2, t-3, which it hasn't"
    # Where it polls once more in between it hears that they are gone.
    assert events("consumer", 25_000) == []
    assert events("classic", 22_000) == []


def test_a_member_waits_for_the_lost_answer_to_its_join_as_long_as_a_rebalance_may_take() -> None:
    # The others are to join again when the leaver goes; the answer to this one's JoinGroup is cut off.
    leaver = MemberPlan("leaver", 1, "g", ("t",), 0, _CLASSIC, close_at_ms=20_000)
    slow = MemberPlan("slow", 1, "g", ("t",), 0, _CLASSIC, stalls=(Stall(19_500, 5_000),))
    cut = MemberPlan("cut", 1, "g", ("t",), 0, _CLASSIC, cuts=(Cut(22_000, 20_000),))
    assert _kinds(_world(leaver, slow, cut, end_ms=200_000)) == {LOST_JOIN}
    assert _kinds(_world(leaver, slow, cut, end_ms=400_000)) == set()


def test_a_commit_of_a_connection_that_was_given_up_comes_after_a_later_one() -> None:
    # Nothing is answered within its session, so the member looks for the coordinator anew; then its link is fast again,
    # and it commits at once, for it is to join again.
    often = {**_CLASSIC, "auto.commit.interval.ms": 1_000}
    slow = MemberPlan("slow", 1, "g", ("t",), 900, often, slow=(Slow(49_000, 9_200, 5_300),))
    joins = MemberPlan("joins", 1, "g", ("t",), 52_400, often)
    plan = replace(_world(slow, joins, end_ms=120_000), topics=(TopicPlan("t", 4, records_s=2.0),))
    assert _kinds(plan) == {LATE_COMMIT}
    faster = replace(slow, slow=(Slow(49_000, 9_200, 4_000),))
    assert _kinds(replace(plan, members=(faster, joins))) == set()


def test_a_commit_that_is_tried_again_for_a_topic_is_gone_holds_what_was_read_before_it_was_refused() -> None:
    # Kafka's own members against Kafka's own coordinator do the same where a topic is deleted.
    consumer = {"group.protocol": "consumer", "metadata.max.age.ms": 10_000}
    members = tuple(MemberPlan(name, 1, "g", ("gone", "kept"), 0, consumer) for name in ("a", "b"))
    topics = TopicPlan("gone", 4, records_s=10.0), TopicPlan("kept", 4, records_s=10.0)
    plan = WorldPlan(members, topics, 90_000, network=NetworkPlan((1, 5)))
    deleted = replace(plan, topics=(*topics, TopicPlan("gone", 0, 34_000, records_s=10.0)))
    assert _kinds(deleted) == {OLD_RETRY}
    assert _kinds(plan) == set()


def test_an_application_is_told_late_of_partitions_that_its_member_gave_up_and_another_has_by_then() -> None:
    # The second one's thread takes the first one's partitions over at 62 s, leaves at 84 s, and its application, which
    # stands still from 64 to 112 s, hears of both then. The first one has come back meanwhile.
    first = MemberPlan("first", 1, "g", ("t",), 0, _CONSUMER, stalls=(Stall(42_000, 25_000),))
    second = MemberPlan("second", 1, "g", ("t",), 1_000, _CONSUMER, stalls=(Stall(61_500, 50_000),))
    plan = _world(first, second, end_ms=180_000)
    history = World(plan, 1).run()
    assert {violation.kind for violation in violations(history)} == {KEPT_UNAWARES}
    after_ms = plan.start_ms + 111_500
    (late,) = [
        place
        for place, event in enumerate(history.events)
        if (event.process, event.event) == ("second/1", "lost") and event.ts_ms >= after_ms
    ]
    told = history.events[late - 1]
    assert (told.process, told.event) == ("second/1", "assigned")
    # Were it not told that it lost what it had, there would be two owners.
    del history.events[late]
    assert "two owners" in {violation.kind for violation in violations(history)}


def test_who_had_nothing_when_its_member_left_is_not_told_that_it_lost_what_it_is_then_given() -> None:
    """Its thread takes the partition over at 32 s, and leaves at 45 s: of which its application doesn't hear."""
    first = MemberPlan("first", 1, "g", ("t",), 0, _CONSUMER, crash_at_ms=22_000)
    second = MemberPlan("second", 1, "g", ("t",), 1_000, _CONSUMER, stalls=(Stall(25_000, 30_000),))
    third = MemberPlan("third", 1, "g", ("t",), 40_000, _CONSUMER)
    plan = replace(_world(first, second, third, end_ms=120_000), topics=(TopicPlan("t", 1),))
    history = World(plan, 1).run()
    (violation,) = violations(history)
    assert violation.kind == KEPT_UNAWARES
    assert violation.detail == "t-0 was given to second/1 and is third/1's"
    told = [event.event for event in history.events if event.process == "second/1" and event.partitions]
    assert told == ["assigned", "revoked"]


def test_an_application_that_is_told_late_may_have_callbacks_that_take_their_time() -> None:
    """The first one comes back while the second is told what it was given before its member left."""
    first = MemberPlan("first", 1, "g", ("t",), 0, _CONSUMER, stalls=(Stall(42_000, 69_800),))
    second = MemberPlan("second", 1, "g", ("t",), 1_000, _CONSUMER, stalls=(Stall(61_500, 50_000),), callback_ms=1_500)
    plan = _world(first, second, end_ms=180_000)
    history = World(plan, 1).run()
    assert {violation.kind for violation in violations(history)} == {KEPT_UNAWARES}
    had = [(event.process, event.event) for event in history.events if event.partitions]
    at = had.index(("first/1", "lost"))
    assert had[at - 1 : at + 3] == [
        ("second/1", "assigned"),
        ("first/1", "lost"),
        ("first/1", "assigned"),
        ("second/1", "lost"),
    ]


def test_a_commit_before_partitions_are_given_up_is_tried_again_with_what_was_read_when_its_connection_got_lost() -> (
    None
):
    plan = draw_world(read_scenario(ROOT / "conf" / "scenarios" / "network-cut.toml"), 4172)
    found = violations(World(plan, 4172).run())
    assert [violation.kind for violation in found] == [OLD_RETRY, OLD_RETRY]


def test_who_loses_a_connection_just_before_the_end_has_no_time_to_be_stable() -> None:
    plan = draw_world(read_scenario(ROOT / "conf" / "scenarios" / "network-cut.toml"), 2246)
    history = World(plan, 2246).run()
    (one,) = history.waiting
    assert 0 < history.end_ms - one.since_ms < 1_000
    assert violations(history) == []
    # Whoever waits for longer is told of.
    history.waiting = [replace(one, since_ms=history.end_ms - 60_000)]
    assert [violation.kind for violation in violations(history)] == ["waiting"]


#: A topic that was deleted and made again has another id than the one that follows from its name.
@pytest.mark.parametrize("id_", [None, topic_id("another")])
def test_what_a_member_says_that_it_owns_as_it_is_given_more_crosses_what_it_is_to_have_next(
    id_: str | None,
) -> None:
    properties = {**_KIP_848, "auto.commit.interval.ms": 200}
    slow = MemberPlan("slow", 1, "g", ("t",), 3_400, properties, callback_ms=2_700)

    def found(third_ms: int) -> list[Violation]:
        first, third = MemberPlan("first", 1, "g", ("t",), 1_500, properties), replace(slow, client_id="third")
        plan = _world(first, slow, replace(third, start_ms=third_ms, callback_ms=0), end_ms=60_000)
        settings = SHORT_SESSIONS | {
            "group.consumer.heartbeat.interval.ms": 1_000,
            "group.consumer.min.heartbeat.interval.ms": 1_000,
        }
        plan = replace(
            plan,
            settings=settings,
            topics=(TopicPlan("t", 12, records_s=5.0, id=id_),),
            network=NetworkPlan((20, 20)),
        )
        return violations(World(plan, 1).run())

    # The callback of its first assignment, which is empty, ends at 6.2 s; it has heard of its next one at 4.5 s.
    told = found(6_000)
    assert {one.kind for one in told} == {CROSSED_ASSIGNMENT}
    assert {one.detail.split(" was given to ")[-1] for one in told[:2]} == {"third/1 and is slow/1's"}
    # Both commit, and what is committed falls.
    assert [one.detail for one in told[2:]] == [
        f"slow/1 committed 45 of t-{number} after third/1 had committed 59" for number in (10, 11)
    ]
    # Later than that the coordinator waits until it has given up what is another's.
    assert found(15_000) == []


def test_a_kip_848_member_that_comes_before_the_first_generation_of_a_classic_group_is_refused_for_good() -> None:
    classic = MemberPlan("classic", 1, "g", ("t",), 0, _CLASSIC)

    def found(start_ms: int, **changes: Any) -> tuple[History, list[Violation]]:
        plan = _world(classic, MemberPlan("consumer", 1, "g", ("t",), start_ms, _KIP_848, **changes), end_ms=60_000)
        settings = SHORT_SESSIONS | {
            "group.initial.rebalance.delay.ms": 3_000,
            "group.consumer.migration.policy": "bidirectional",
        }
        history = World(replace(plan, settings=settings), 1).run()
        return history, violations(history)

    history, told = found(1_000)
    assert [(one.kind, one.detail.split(":")[0]) for one in told] == [
        (TOO_EARLY, "consumer/1 is answered UNKNOWN_SERVER_ERROR to ConsumerGroupHeartbeat")
    ]
    (error,) = (one for one in history.events if one.process == "consumer/1" and one.event == "error")
    assert error.detail == "poll: UnknownServerException: UNKNOWN_SERVER_ERROR"
    assert not any(one.process == "consumer/1" and one.is_stable for one in history.memberships)
    # That isn't so once the first generation is there; nor, of one that is started again until then, for long.
    assert found(10_000)[1] == []
    history, told = found(1_000, again_ms=2_000)
    assert {one.kind for one in told} == {TOO_EARLY}
    assert any(one.process == "consumer/1" and one.is_stable for one in history.memberships)


def test_that_a_coordinator_fails_for_another_reason_is_not_kafkas_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR)

    monkeypatch.setattr("coordinator_udf.groups.consumer.heartbeat._assignment", fail)
    told = violations(World(_world(MemberPlan("a", 1, "g", ("t",), 0, _KIP_848), end_ms=60_000), 1).run())
    assert "server error" in {one.kind for one in told}


@pytest.mark.parametrize(
    ("seed", "details"),
    [
        (2092, ["orders-8 was given to a3/2 and is a1-more1/1's"]),
        (
            9211,
            [
                "orders-8 was given to a3/2 and is a1-more1/1's",
                "orders-10 was given to a3/2 and is a1-more2/1's",
            ],
        ),
    ],
)
def test_a_group_that_changes_its_type_twice_between_heartbeats_forgets_who_has_what(
    seed: int, details: list[str]
) -> None:
    plan = draw_world(read_scenario(ROOT / "conf" / "scenarios" / "mixed-protocols.toml"), seed)
    history = World(plan, seed).run()
    found = [one for one in violations(history) if one.kind != TOO_EARLY]
    assert [(one.kind, one.detail) for one in found] == [(FORGOTTEN_OWNER, detail) for detail in details]
    # Whose it was hears of it with its next heartbeat, within a second.
    told_ms = found[0].ts_ms
    for process in {one.detail.split(" is ")[1].removesuffix("'s") for one in found}:
        lost = (one.ts_ms for one in history.events if (one.process, one.event) == (process, "lost"))
        assert any(0 < ts_ms - told_ms < 1_000 for ts_ms in lost)
    # Had they joined again while the group was classic, the coordinator would know.
    heard = (
        KnownMembership(told_ms - 1, 0, "g", name, "", 0, is_stable=False) for name in ("a1-more1/1", "a1-more2/1")
    )
    history.memberships = sorted([*heard, *history.memberships], key=lambda one: one.ts_ms)
    assert {one.kind for one in violations(history)} >= {"two owners"}


@pytest.mark.parametrize(
    ("poll_ms", "process_ms", "network_ms", "is_told"),
    # Kafka's own client did the same on its broker.
    [(0, 1_000, 1, False), (0, 50, 1, True), (50, 2_000, 150, False), (500, 2_000, 150, True)],
)
def test_who_subscribes_to_a_pattern_isnt_told_that_it_has_joined_while_its_polls_are_short(
    poll_ms: int, process_ms: int, network_ms: int, is_told: bool
) -> None:
    member = MemberPlan("m", 1, "g", (), 0, _CLASSIC, regex="t.*", poll_ms=poll_ms, process_ms=process_ms)
    plan = replace(_world(member, end_ms=90_000), network=NetworkPlan((network_ms, network_ms)), quiet_ms=60_000)
    assert _kinds(plan) == (set() if is_told else {SHORT_POLL})
    # Those of the topics' names have nothing to wait for.
    assert _kinds(replace(plan, members=(replace(member, regex=None, topics=("t",)),))) == set()


@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
def test_partitions_that_came_while_a_static_leader_was_away_have_no_owner(*, is_static: bool) -> None:
    """It goes on with what it had, and takes the topic as it is by then for what it has assigned from."""
    properties = _CLASSIC | {"metadata.max.age.ms": 2_000} | ({"group.instance.id": "m"} if is_static else {})
    first = MemberPlan("m", 1, "g", ("t",), 0, properties, close_at_ms=20_000)
    second = replace(first, run=2, start_ms=23_000, close_at_ms=None)
    plan = replace(_world(first, second, end_ms=120_000), topics=(TopicPlan("t", 4), TopicPlan("t", 8, 21_000)))
    without_owner = [violation.detail for violation in violations(World(plan, 1).run())]
    expected = [f"t-{number} has 0 owners at the end (none)" for number in range(4, 8)]
    assert without_owner == (expected if is_static else [])


def test_a_member_leaves_while_its_close_waits_for_a_commit_that_got_lost() -> None:
    # The commit is lost with the cut, and waited for as long as a close may take (30 s).
    closing = MemberPlan(
        "closing",
        1,
        "g",
        ("t",),
        0,
        {**_KIP_848, "max.poll.interval.ms": 10_000},
        close_at_ms=20_100,
        cuts=(Cut(20_050, 3_000),),
    )
    plan = _world(closing, MemberPlan("other", 1, "g", ("t",), 0, _KIP_848), end_ms=90_000)
    plan = replace(
        plan,
        topics=(TopicPlan("t", 2, records_s=5.0),),
        settings={"group.consumer.heartbeat.interval.ms": 1_000, "group.consumer.min.heartbeat.interval.ms": 1_000},
    )
    history = World(plan, 1).run()
    told = [(one.process, one.event) for one in history.events if one.ts_ms > plan.start_ms + 20_000]
    assert told[0] == ("closing/1", "close")
    # Its application has not given up by then what the other is given.
    assert told.index(("other/1", "assigned")) < told.index(("closing/1", "closed"))
    assert violations(history) == []
    history.poll_intervals_ms["closing/1"] = 60_000
    assert {one.kind for one in violations(history)} == {"two owners"}
