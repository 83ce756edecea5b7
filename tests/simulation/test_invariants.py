"""What must not be is found where it is, and only there: histories that are made up, and small worlds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from coordinator_udf.groups.decisions import COLUMNS, Decisions
from coordinator_udf.members.inputs import Subscribe, SubscribePattern, SubscribeRegex, TopicPartition
from coordinator_udf.simulation.history import ApplicationEvent, Commit, History, KnownMembership, Removed, Unsettled
from coordinator_udf.simulation.invariants import LOST_JOIN, violations
from coordinator_udf.simulation.plan import Cut, Habit, MemberPlan, NetworkPlan, Stall, TopicPlan, WorldPlan
from coordinator_udf.simulation.scenario import draw_world, read_scenario
from coordinator_udf.simulation.world import World
from coordinator_udf.simulation.wrong_callbacks import GIVEN_UP_TWICE
from tests.conftest import ROOT
from tests.simulation.short_sessions import SHORT_SESSIONS

_CLASSIC: dict[str, Any] = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000}
_T0 = TopicPartition("t", 0)


def _kinds(history: History) -> list[str]:
    return [violation.kind for violation in violations(history)]


def _event(ts_ms: int, client_id: str, event: str, *partitions: TopicPartition) -> ApplicationEvent:
    return ApplicationEvent(ts_ms, "g", client_id, 1, event, partitions)


# ---- two owners


def _given_to_b_while_a_has_it(history: History) -> None:
    """Lets a be told that it has a partition that b is given, too."""
    history.events += [_event(70, "a", "assigned", _T0), _event(80, "b", "assigned", _T0), _event(90, "b", "closed")]


def _removed(*memberships: KnownMembership) -> History:
    """Returns a history in which a, who owned nothing, was removed at 50 as the member m, in generation 2."""
    history = History(0, 100, {"t": 1}, process_of={"m": "a/1", "n": "a/1"}, removals=[Removed(50, "m", 2)])
    history.events = [_event(0, "a", "start"), _event(1, "b", "start")]
    history.memberships = [KnownMembership(10, 2, "g", "a/1", "m", 1, is_stable=True), *memberships]
    history.subscribed = {"a/1": Subscribe(("t",))}
    _given_to_b_while_a_has_it(history)
    return history


def test_who_was_removed_is_excused_until_it_has_a_new_membership() -> None:
    assert _kinds(_removed()) == []
    fenced = KnownMembership(55, 2, "g", "a/1", "m", 0, is_stable=False)
    assert _kinds(_removed(fenced)) == []
    for before in ((), (fenced,)):
        old = KnownMembership(60, 2, "g", "a/1", "m", 2, is_stable=True)
        assert _kinds(_removed(*before, old)) == [], "the answer to what it asked before it was removed"
        known_again = KnownMembership(60, 2, "g", "a/1", "m", 3, is_stable=True)
        assert _kinds(_removed(*before, known_again)) == ["two owners"]
    as_another = KnownMembership(60, 2, "g", "a/1", "n", 3, is_stable=True)
    assert _kinds(_removed(as_another)) == ["two owners"]
    after_both = KnownMembership(85, 4, "g", "a/1", "n", 3, is_stable=True)
    assert _kinds(_removed(after_both)) == []


def test_who_is_removed_under_an_id_that_it_has_no_more_is_not_excused() -> None:
    assert _kinds(_removed(KnownMembership(40, 2, "g", "a/1", "n", 2, is_stable=True))) == ["two owners"]


@pytest.mark.parametrize(("made_ms", "kinds"), [(75, []), (60, ["two owners"]), (85, ["two owners"])])
def test_a_topic_that_is_made_again_is_not_the_one_that_others_have(made_ms: int, kinds: list[str]) -> None:
    history = History(0, 100, {}, made_again=[(made_ms, "t")])
    _given_to_b_while_a_has_it(history)
    assert _kinds(history) == kinds
    history = History(0, 100, {}, made_again=[(made_ms, "t")])
    history.acknowledge(Commit(70, "g", _T0, 9, "a/1"))
    history.acknowledge(Commit(80, "g", _T0, 1, "b/1"))
    assert _kinds(history) == ["overtaken commit"] * len(kinds)


@pytest.mark.parametrize(("given_ms", "kinds"), [(40, []), (60, ["overtaken commit"])])
def test_who_was_given_a_topic_that_was_made_again_since_commits_what_was_read_of_it(
    given_ms: int, kinds: list[str]
) -> None:
    history = History(0, 100, {}, made_again=[(50, "t")])
    history.events = [_event(given_ms, "b", "assigned", _T0), _event(95, "b", "closed")]
    history.overtaken = [(Commit(70, "g", _T0, 9, "a/1"), Commit(80, "g", _T0, 3, "b/1"))]
    assert _kinds(history) == kinds


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("assigned", "assigned", "wrong callback"),
        ("revoked", "revoked", "wrong callback"),
        ("revoked", "lost", "wrong callback"),
        ("assigned", "revoked", None),
        ("revoked", "assigned", None),
    ],
)
def test_an_application_is_given_what_it_has_not_and_gives_up_what_it_has(
    first: str, second: str, kind: str | None
) -> None:
    history = History(0, 100, {})
    had = [_event(10, "a", "assigned", _T0)] if first == "revoked" else []
    history.events = [*had, _event(20, "a", first, _T0), _event(30, "a", second, _T0), _event(40, "a", "closed")]
    assert _kinds(history) == [kind] * (kind is not None)
    history.kip_848 = frozenset({"a/1"})
    assert _kinds(history) == [kind if first == "assigned" else GIVEN_UP_TWICE] * (kind is not None)


def test_a_plan_tells_which_topics_are_made_again() -> None:
    topics = TopicPlan("t", 0, 500), TopicPlan("t", 4), TopicPlan("t", 4, 900), TopicPlan("u", 3, 100)
    assert WorldPlan((), topics, 1_000).topics_made_again() == [(900, "t")]


@pytest.mark.parametrize("is_started_again", [False, True])
def test_who_is_started_again_under_its_name_isnt_excused_for_what_it_was_before(is_started_again: bool) -> None:
    """A process that stands still may believe to own what is another's; the next one of its name doesn't."""
    history = History(0, 100, {"t": 1}, process_of={"m": "a/1", "n": "b/1"})
    history.events = [_event(0, "a", "start"), _event(1, "b", "start"), _event(20, "a", "stall")]
    if is_started_again:
        history.events += [_event(30, "a", "close"), _event(31, "a", "closed"), _event(40, "a", "start")]
    _given_to_b_while_a_has_it(history)
    assert ("two owners" in _kinds(history)) == is_started_again


# ---- at the end


def _world(*members: MemberPlan, end_ms: int = 120_000, **changes: Any) -> History:
    topics = TopicPlan("x", 3), TopicPlan("y", 2), TopicPlan("z", 1)
    plan = WorldPlan(members, topics, end_ms, SHORT_SESSIONS, NetworkPlan((1, 5)))
    return World(replace(plan, **changes), 1).run()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_that_only_the_dead_wanted_need_no_owner(protocol: str) -> None:
    properties = {"group.protocol": protocol} | (_CLASSIC if protocol == "classic" else {})
    a = MemberPlan("a", 1, "g", ("x",), 0, properties)
    b = MemberPlan("b", 1, "g", ("y",), 1_000, properties, crash_at_ms=30_000)
    assert violations(_world(a, b)) == []


@pytest.mark.parametrize("subscription", [("y",), "[yz]", "y.*|z"])
def test_what_any_living_member_wants_has_an_owner(
    monkeypatch: pytest.MonkeyPatch, subscription: tuple[str, ...] | str
) -> None:
    """Also of what others want than who started last: a dead one's session never ends, and everybody waits for it."""
    monkeypatch.setattr("coordinator_udf.groups.timer_handlers.session_expired", lambda *_: None)
    wants: dict[str, Any] = {"topics": subscription} if isinstance(subscription, tuple) else {"regex": subscription}
    b = MemberPlan("b", 1, "g", (), 0, _CLASSIC)
    history = _world(
        replace(b, crash_at_ms=30_000, **wants),
        replace(b, run=2, start_ms=31_000, **wants),
        MemberPlan("a", 1, "g", ("x",), 40_000, _CLASSIC),
    )
    unowned = {one.detail.split()[0] for one in violations(history) if one.kind == "unsettled"}
    assert {"y-0", "y-1"} <= unowned
    assert ("z-0" in unowned) == (subscription != ("y",))


def test_patterns_are_matched_as_their_side_matches_them() -> None:
    history = History(0, 100, {"t-1": 1, "u": 1}, events=[_event(0, "a", "start")])
    for subscription, wanted in (
        (SubscribePattern("t-(?=1).*"), {"t-1-0"}),
        (SubscribeRegex("(?i)T-."), {"t-1-0"}),
        (SubscribeRegex("t"), set()),
        (Subscribe(("u", "gone")), {"u-0"}),
    ):
        history.subscribed = {"a/1": subscription}
        assert {one.detail.split()[0] for one in violations(history)} == wanted


def test_members_are_stable_in_time_after_the_last_fault() -> None:
    def kinds(*unsettled: Unsettled, lost_joins: tuple[tuple[int, str], ...] = ()) -> list[str]:
        history = History(0, 500, {}, unsettled=list(unsettled), quiet_from_ms=100, quiet_ms=60)
        return _kinds(replace(history, lost_joins=list(lost_joins)))

    assert kinds(Unsettled("g", "a/1", 0, 160), Unsettled("g", "a/1", 200, 260)) == []
    assert kinds(Unsettled("g", "a/1", 0, 161)) == ["waiting"]
    assert kinds(Unsettled("g", "a/1", 200, 261)) == ["waiting"]
    assert kinds(Unsettled("g", "a/1", 0, 161), lost_joins=((150, "a/1"),)) == [LOST_JOIN]
    assert kinds(Unsettled("g", "a/1", 0, 161), lost_joins=((150, "b/1"),)) == ["waiting"]


def test_who_takes_longer_than_the_quiet_time_is_found_though_it_is_stable_at_the_end() -> None:
    """A lost join, which lasts for five minutes: in the history is when who was not stable, and why."""
    leaver = MemberPlan("leaver", 1, "g", ("x",), 0, _CLASSIC, close_at_ms=20_000)
    slow = MemberPlan("slow", 1, "g", ("x",), 0, _CLASSIC, stalls=(Stall(19_500, 5_000),))
    cut = MemberPlan("cut", 1, "g", ("x",), 0, _CLASSIC, cuts=(Cut(22_000, 20_000),))
    assert _kinds(_world(leaver, slow, cut, end_ms=400_000)) == []
    assert _kinds(_world(leaver, slow, cut, end_ms=400_000, quiet_ms=60_000)) == [LOST_JOIN]
    assert _kinds(_world(leaver, slow, cut, end_ms=400_000, quiet_ms=320_000)) == []


# ---- numbers


def _recorded(*records: tuple[int, str, str | None, dict[str, Any] | None]) -> History:
    """Returns a history with records: their time, type, member and value."""
    decisions = Decisions()
    for ts_ms, kind, member_id, value in records:
        row = dict.fromkeys(COLUMNS["records"])
        body = None if value is None else json.dumps(value)
        row |= {"ts": ts_ms, "record_type": kind, "group_id": "g", "member_id": member_id, "body": body}
        decisions.records.append(tuple(row.values()))
    return History(0, 100, {}, decisions=[decisions], process_of={"m": "a/1"})


def _group(ts_ms: int, generation: int, *members: str) -> tuple[int, str, None, dict[str, Any]]:
    return ts_ms, "GroupMetadata", None, {"generation": generation, "members": list(members)}


_OF_MEMBER, _OF_TARGET = "ConsumerGroupCurrentMemberAssignment", "ConsumerGroupTargetAssignmentMetadata"
_NO_GROUP = "GroupMetadata", None, None
_NO_CONSUMER_GROUP = "ConsumerGroupMetadata", None, None


@pytest.mark.parametrize(
    ("records", "details"),
    [
        ([_group(1, 3, "m"), _group(2, 2, "m")], ["generation 2 after 3"]),
        ([_group(1, 3), (2, *_NO_GROUP), _group(3, 1)], []),
        ([(1, _OF_MEMBER, "m", {"memberEpoch": 3}), (2, _OF_MEMBER, "m", {"memberEpoch": 2})], [
            "memberEpoch of a/1 2 after 3"
        ]),
        ([(1, _OF_MEMBER, "m", {"memberEpoch": 3}), (2, _OF_MEMBER, "n", {"memberEpoch": 2})], []),
        ([
            (1, _OF_MEMBER, "m", {"memberEpoch": 3}), (2, _OF_MEMBER, "m", {"memberEpoch": -2}),
            (3, _OF_MEMBER, "m", {"memberEpoch": 3}),
        ], []),
        ([(1, _OF_TARGET, None, {"assignmentEpoch": 3}), (2, _OF_TARGET, None, {"assignmentEpoch": 2})], [
            "assignmentEpoch 2 after 3"
        ]),
        ([_group(1, 7, "m"), (2, *_NO_GROUP), (2, "ConsumerGroupMetadata", None, {"epoch": 7})], []),
        ([_group(1, 7, "m"), (2, *_NO_GROUP), (2, "ConsumerGroupMetadata", None, {"epoch": 6})], [
            "epoch 6 after 7 of the group's other type"
        ]),
        ([_group(1, 7), (2, *_NO_GROUP), (2, "ConsumerGroupMetadata", None, {"epoch": 1})], []),
        ([(1, "ConsumerGroupMetadata", None, {"epoch": 7}), (2, *_NO_CONSUMER_GROUP), _group(2, 6, "m")], [
            "generation 6 after 7 of the group's other type"
        ]),
        ([(1, "ConsumerGroupMetadata", None, {"epoch": 7}), (2, *_NO_CONSUMER_GROUP), _group(2, 0)], []),
    ],
)  # fmt: skip
def test_recorded_generations_and_epochs_only_rise(records: list[Any], details: list[str]) -> None:
    found = violations(_recorded(*records))
    assert [one.detail for one in found] == details
    assert {one.kind for one in found} <= {"falling number"}


def test_what_a_member_is_told_only_rises() -> None:
    def told(*numbers: tuple[int, int, bool]) -> list[str]:
        history = _recorded((1, "ConsumerGroupMetadata", None, {"epoch": 9}), (30, *_NO_CONSUMER_GROUP))
        for ts_ms, number, is_stable in numbers:
            history.memberships.append(KnownMembership(ts_ms, 0, "g", "a/1", "m", number, is_stable))
        return [violation.detail for violation in violations(history)]

    assert told((10, 3, True), (11, 0, False), (12, 3, True), (13, 4, True)) == []
    assert told((10, 3, True), (11, 0, False), (12, 2, True)) == ["a/1 is told 2 after 3"]
    # A generation that was never complete may come again; and a new group begins anew.
    assert told((10, 4, False), (12, 3, True)) == []
    assert told((10, 3, True), (40, 1, True)) == []


# ---- what outlasts its time


@pytest.mark.parametrize(("until_ms", "kinds"), [(30_000, []), (40_000, ["phase too long"])])
def test_a_phase_of_a_rebalance_is_over_when_its_timer_fires(until_ms: int, kinds: list[str]) -> None:
    def transition(ts_ms: int, from_state: str, to_state: str) -> Decisions:
        decided = Decisions()
        row = {"ts": ts_ms, "group_id": "g", "from_state": from_state, "to_state": to_state, "members": "[]"}
        row["generation"] = 1
        decided.transitions.append(tuple(row.get(name) for name in COLUMNS["transitions"]))
        return decided

    history = History(0, 60_000, {}, rebalance_timeouts_ms={"g": 30_000})
    history.decisions = [
        transition(100, "PreparingRebalance", "CompletingRebalance"),
        transition(100 + until_ms, "CompletingRebalance", "Stable"),
    ]
    assert _kinds(history) == kinds
    # Where the coordinator goes away it isn't known how long timers last.
    assert _kinds(replace(history, rebalance_timeouts_ms={})) == []


@pytest.mark.parametrize("fires", [True, False])
def test_who_never_sends_syncgroup_stays_only_for_its_rebalance_timeout(
    monkeypatch: pytest.MonkeyPatch, fires: bool
) -> None:
    if not fires:
        monkeypatch.setattr("coordinator_udf.groups.timer_handlers.sync_expired", lambda *_: None)
    properties = {**_CLASSIC, "max.poll.interval.ms": 20_000}
    members = (
        MemberPlan("leader", 1, "g", ("t",), 0, properties),
        MemberPlan("mute", 1, "g", ("t",), 1_000, properties, habit=Habit.NEVER_SYNCS),
    )
    found = violations(World(WorldPlan(members, (TopicPlan("t", 2),), 60_000, SHORT_SESSIONS), 1).run())
    assert ("phase too long" in {violation.kind for violation in found}) is not fires


@pytest.mark.parametrize(
    ("removed_ms", "is_stable", "kinds"),
    [(12_000, True, ["didn't leave"]), (12_000, False, []), (3_000, True, [])],
    ids=["removed late", "not a member yet", "removed at once"],
)
def test_who_closes_as_a_member_leaves(removed_ms: int, is_stable: bool, kinds: list[str]) -> None:
    history = History(0, 20_000, {}, process_of={"m": "a/1"}, leave_on_close=frozenset({"a/1"}))
    history.events = [_event(ts_ms, "a", name) for ts_ms, name in ((0, "start"), (1_000, "close"), (1_010, "closed"))]
    history.memberships = [KnownMembership(500, 1, "g", "a/1", "m", 1, is_stable=is_stable)]
    history.removals = [Removed(removed_ms, "m", 1)]
    assert _kinds(history) == kinds
    # One that nothing is expected of: a static member, or one whose requests get lost.
    assert _kinds(replace(history, leave_on_close=frozenset())) == []


def test_nobody_is_waited_for_whose_leaving_ends_the_join_phase() -> None:
    """In this world a process closes before it joins with the id that it was given; all others have joined by then."""
    scenario = read_scenario(ROOT / "conf/scenarios/slow-links.toml")
    history = World(draw_world(scenario, 335), 335).run()
    assert [one for one in violations(history) if one.kind == "didn't wait"] == []
