"""The cases of the proposal of 2015 as scenarios: on plain Kafka behaviour, and with its two extensions.

Each is a function of a world, made for the tests of this room and once more for the stream. The plain ones hold on
Kafka's own coordinator too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.groups.bodies import base64, subscription
from tests.groups.harness import Asked, Member, World

Scenario = Callable[[World], None]

OWNS_NOTHING: Mapping[str, Any] = {"ownsNothing": True}


def _join_all(world: World, members: list[Member], **how: Any) -> list[Member]:
    """All join again; the leader first."""
    asked = [world.join(member, **how) for member in members]
    assert [one.error for one in asked] == ["NONE"] * len(asked)
    return sorted((one.member for one in asked), key=lambda member: member.id != member.leader)


def _sync_all(world: World, members: list[Member], name: str, **how: Any) -> None:
    leader, *others = members
    waiting = [world.sync(member, **how) for member in others]
    waiting.append(world.sync(leader, {m.id: f"{name} for {m.id}".encode() for m in members}, **how))
    assert [one.error for one in waiting] == ["NONE"] * len(members)


def _given(member: Member, name: str) -> str:
    return base64(f"{name} for {member.id}".encode())


# -- the four failures of the coordinator -----------------------------------------------------------------------------


def coordinator_fails_before_all_have_joined(world: World) -> None:
    """All members send their JoinGroup again."""
    members = world.stable(3)
    early = [world.join(member, protocols={"range": subscription("t0", "t1")}) for member in members[:2]]
    assert all(one.waits for one in early)
    world.fail_over()
    assert [one.error for one in early] == ["NOT_COORDINATOR"] * 2
    # Nothing of that rebalance was stored: the group is as it was, and the first JoinGroup begins it anew.
    assert (world.state(), world.generation()) == ("Stable", 1)
    again = [world.join(member, protocols={"range": subscription("t0", "t1")}) for member in members]
    assert [one.body["generationId"] for one in again] == [2, 2, 2]


def coordinator_fails_before_all_know_the_generation(world: World) -> None:
    """The leader may sync while others still join; any JoinGroup ends that synchronisation and all join again."""
    members = world.stable(3)
    joined = _join_all(world, members, protocols={"range": subscription("t0", "t1")})
    leader, *others = joined
    # Those that got the answer begin to synchronise at once.
    assert world.sync(leader, {m.id: b"x" for m in joined}).error == "NONE"
    assert (world.state(), world.generation()) == ("Stable", 2)
    world.fail_over()
    # The last one never heard of the generation: its JoinGroup, with other metadata than is stored, forces all to join.
    late = world.join(others[1], protocols={"range": subscription("t1")})
    assert late.waits
    assert [world.sync(member).error for member in joined[:2]] == ["REBALANCE_IN_PROGRESS"] * 2
    rest = [world.join(member, protocols={"range": subscription("t0", "t1")}) for member in joined[:2]]
    assert [one.body["generationId"] for one in (late, *rest)] == [3, 3, 3]


def a_join_ends_a_synchronisation(world: World) -> None:
    """A JoinGroup while members synchronise ends that, and all who wait are told to join again."""
    leader, second, third = world.joined(3)
    waiting = world.sync(second)
    joined = world.join(third, protocols={"range": subscription("t1")})
    assert joined.waits
    assert waiting.error == "REBALANCE_IN_PROGRESS"
    assert world.sync(leader, {leader.id: b"too late"}).error == "REBALANCE_IN_PROGRESS"
    assert world.state() == "PreparingRebalance"


def coordinator_fails_before_the_synchronisation_is_stored(world: World) -> None:
    """Members synchronise once more; as Kafka stores no generation before it is synchronised, they join again first."""
    members = world.stable(3)
    joined = _join_all(world, members, protocols={"range": subscription("t0", "t1")})
    leader, *others = joined
    waiting = [world.sync(member) for member in others]
    world.fail_over()
    assert [one.error for one in waiting] == ["NOT_COORDINATOR"] * 2
    again = [world.sync(member) for member in others] + [world.sync(leader, {leader.id: b"x"})]
    assert [one.error for one in again] == ["ILLEGAL_GENERATION"] * 3
    assert (world.state(), world.generation()) == ("Stable", 1)
    _sync_all(world, _join_all(world, members, protocols={"range": subscription("t0", "t1")}), "new")
    assert (world.state(), world.generation()) == ("Stable", 2)


def coordinator_fails_after_the_synchronisation_is_stored(world: World) -> None:
    """Who hadn't its answer sends SyncGroup again and has its state at once; nobody else has to do anything."""
    leader, second, third = world.joined(3)
    world.sync(leader, {m.id: b"for " + m.id.encode() for m in (leader, second, third)})
    world.fail_over()
    records = len(world.coordinator_records)
    for member in (second, third):
        assert world.sync(member).body["assignment"] == base64(b"for " + member.id.encode())
        assert world.heartbeat(member).error == "NONE"
    assert (world.state(), world.generation(), len(world.coordinator_records)) == ("Stable", 1, records)


# -- other cases ------------------------------------------------------------------------------------------------------


def leader_fails(world: World) -> None:
    """Its session ends; all others join again, and another one leads."""
    leader, *others = world.stable(3, session_ms=10_000)
    world.keep_alive(others, 9_000)
    assert world.state() == "Stable"
    world.advance(1_000)
    assert [world.heartbeat(member).error for member in others] == ["REBALANCE_IN_PROGRESS"] * 2
    joined = _join_all(world, others)
    assert joined[0].leader in {member.id for member in others}
    _sync_all(world, joined, "new")
    assert leader.id not in world.members()


def leader_fails_before_it_assigned(world: World) -> None:
    """Who waits for its assignment is told to join again when the leader's session is over."""
    leader, *others = world.joined(3, session_ms=10_000, rebalance_ms=60_000)
    waiting = [world.sync(member) for member in others]
    world.keep_alive(others, 9_000)
    assert all(one.waits for one in waiting)
    world.advance(1_000)
    assert [one.error for one in waiting] == ["REBALANCE_IN_PROGRESS"] * 2
    assert leader.id not in world.members()


def assignment_fails_without_the_extension(world: World) -> None:
    """A leader that can't assign has no word for it: the others wait until it leaves, or for the rebalance timeout."""
    _, *others = world.joined(3, rebalance_ms=20_000, session_ms=30_000)
    waiting = [world.sync(member) for member in others]
    world.advance(19_999)
    assert all(one.waits for one in waiting)
    world.advance(1)
    assert [one.error for one in waiting] == ["REBALANCE_IN_PROGRESS"] * 2
    assert world.members() == sorted(member.id for member in others)


def subscription_changes(world: World) -> None:
    """A member with another subscription sends JoinGroup; the others hear of it from their heartbeats and follow."""
    leader, second, third = world.stable(3)
    changed = world.join(third, protocols={"range": subscription("t0", "t1")})
    assert changed.waits
    assert [world.heartbeat(member).error for member in (leader, second)] == ["REBALANCE_IN_PROGRESS"] * 2
    rest = [world.join(member) for member in (leader, second)]
    assert [one.body["generationId"] for one in (changed, *rest)] == [2, 2, 2]
    leads = next(one for one in (changed, *rest) if one.body["members"])
    told = {member["memberId"]: member["metadata"] for member in leads.body["members"]}
    assert told[third.id] == base64(subscription("t0", "t1"))


def topics_change_without_the_extension(world: World) -> None:
    """The leader sees it and joins again, with the metadata it had; so all have to."""
    leader, *others = world.stable(3)
    again = world.join(leader)
    assert again.waits
    assert [world.heartbeat(member).error for member in others] == ["REBALANCE_IN_PROGRESS"] * 2
    rest = [world.join(member) for member in others]
    assert [one.body["generationId"] for one in (again, *rest)] == [2, 2, 2]
    joined = sorted((one.member for one in (again, *rest)), key=lambda member: member.id != member.leader)
    _sync_all(world, joined, "new")


def strategy_is_upgraded_in_a_rolling_restart(world: World) -> None:
    """Members that know both strategies come one by one; the old one is chosen until all know the new one."""
    old: dict[str, Any] = {"protocols": ["range"]}
    both: dict[str, Any] = {"protocols": ["sticky", "range"]}
    members = world.stable(3, **old)
    chosen = []
    for upgraded in range(3):
        # The one that comes back with both begins the rebalance, and the others follow.
        order = [members[upgraded], *members[:upgraded], *members[upgraded + 1 :]]
        joined = [world.join(member, **(both if member in members[: upgraded + 1] else old)) for member in order]
        assert [one.body["generationId"] for one in joined] == [upgraded + 2] * 3
        chosen.append(joined[0].body["protocolName"])
        now = {one.member.id: one.member for one in joined}
        leader_first = sorted(now.values(), key=lambda member: member.id != member.leader)
        _sync_all(world, leader_first, f"turn {upgraded}", protocol=chosen[-1])
        members = [now[member.id] for member in members]
    assert chosen == ["range", "range", "sticky"]


PLAIN: tuple[Scenario, ...] = (
    coordinator_fails_before_all_have_joined,
    coordinator_fails_before_all_know_the_generation,
    a_join_ends_a_synchronisation,
    coordinator_fails_before_the_synchronisation_is_stored,
    coordinator_fails_after_the_synchronisation_is_stored,
    leader_fails,
    leader_fails_before_it_assigned,
    assignment_fails_without_the_extension,
    subscription_changes,
    topics_change_without_the_extension,
    strategy_is_upgraded_in_a_rolling_restart,
)


# -- with the extensions ----------------------------------------------------------------------------------------------


def _resync(world: World, members: list[Member], how: int) -> Asked:
    more = {"resync": how, **(OWNS_NOTHING if how == 2 else {})}
    return world.sync(members[0], {m.id: f"new for {m.id}".encode() for m in members}, more=more)


def assignment_fails(world: World) -> None:
    """The leader's error reaches all that wait; its next join begins a rebalance, in which it succeeds."""
    leader, *others = world.joined(3, extensions=True)
    waiting = [world.sync(member) for member in others]
    failed = world.sync(leader, more={"syncErrorCode": 23, "syncErrorReason": "no strategy in common"})
    assert [one.error for one in (failed, *waiting)] == ["INCONSISTENT_GROUP_PROTOCOL"] * 3
    parked = [world.join(member, extensions=True) for member in others]
    assert all(one.waits for one in parked)
    leaders = world.join(leader, extensions=True)
    joined = [leaders.member, *(one.member for one in parked)]
    assert {member.generation for member in joined} == {2}
    _sync_all(world, joined, "new")


def assignment_fails_and_the_leader_with_it(world: World) -> None:
    """The rebalance begins when the rebalance timeout is over, without the leader."""
    leader, *others = world.joined(3, extensions=True, rebalance_ms=20_000, session_ms=60_000)
    waiting = [world.sync(member) for member in others]
    world.sync(leader, more={"syncErrorCode": -1, "syncErrorReason": "out of memory"})
    assert [one.error for one in waiting] == ["UNKNOWN_SERVER_ERROR"] * 2
    parked = [world.join(member, extensions=True, rebalance_ms=20_000, session_ms=60_000) for member in others]
    world.advance(20_000)
    assert world.state() == "PreparingRebalance"
    world.advance(20_000)
    assert {one.body["generationId"] for one in parked} == {2}
    assert leader.id not in world.members()


def topics_change(world: World) -> None:
    """The leader assigns anew and sends SyncGroup; the others hear of it by their heartbeats and send theirs."""
    members = world.stable(3, extensions=True)
    assert _resync(world, members, 1).error == "NONE"
    for member in members[1:]:
        assert world.heartbeat(member).body["resyncEpoch"] == 1
        assert world.sync(member).body["assignment"] == _given(member, "new")
    assert (world.state(), world.generation()) == ("Stable", 1)


def topics_change_and_partitions_change_hands(world: World) -> None:
    """Nobody has its new assignment before all own nothing."""
    members = world.stable(3, extensions=True)
    asked = [_resync(world, members, 2)]
    for member in members[1:]:
        assert all(one.waits for one in asked)
        assert world.heartbeat(member).body["giveUpFirst"] is True
        asked.append(world.sync(member, more=OWNS_NOTHING))
    assert [one.body["assignment"] for one in asked] == [_given(member, "new") for member in members]
    assert (world.state(), world.generation()) == ("Stable", 1)


def topics_change_and_one_member_does_not_understand(world: World) -> None:
    """An ordinary rebalance, as Kafka's."""
    ids = world.new_ids(2)
    asked = [world.join(ids[0], extensions=True), world.join(ids[1])]
    world.advance(10_000)
    members = sorted((one.member for one in asked), key=lambda member: member.id != member.leader)
    _sync_all(world, members, "old")
    assert _resync(world, members, 1).error == "REBALANCE_IN_PROGRESS"
    assert world.heartbeat(members[1]).error == "REBALANCE_IN_PROGRESS"
    _sync_all(world, _join_all(world, members, extensions=True), "new")
    assert world.generation() == 2


def a_join_ends_a_resync(world: World) -> None:
    """Also one that says nothing new, and all who wait are told to join again."""
    members = world.stable(3, extensions=True)
    waiting = [_resync(world, members, 2), world.sync(members[1], more=OWNS_NOTHING)]
    assert world.join(members[2], extensions=True).waits
    assert [one.error for one in waiting] == ["REBALANCE_IN_PROGRESS"] * 2
    joined = [world.join(member, extensions=True) for member in members[:2]]
    assert {one.body["generationId"] for one in joined} == {2}


def coordinator_fails_in_a_resync(world: World) -> None:
    """What was stored goes on: all are told once more."""
    members = world.stable(3, extensions=True)
    waiting = [_resync(world, members, 2), world.sync(members[1], more=OWNS_NOTHING)]
    world.fail_over()
    assert [one.error for one in waiting] == ["NOT_COORDINATOR"] * 2
    assert [world.heartbeat(member).body["resyncEpoch"] for member in members] == [1, 1, 1]
    again = [world.sync(member, more=OWNS_NOTHING) for member in members]
    assert [one.body["assignment"] for one in again] == [_given(member, "new") for member in members]


def coordinator_fails_after_a_resync(world: World) -> None:
    """It is over, and each has what it was given."""
    members = world.stable(2, extensions=True)
    _resync(world, members, 1)
    world.sync(members[1])
    world.fail_over()
    assert "resyncEpoch" not in world.heartbeat(members[1]).body
    assert [world.sync(member).body["assignment"] for member in members] == [_given(m, "new") for m in members]


def leader_fails_in_a_resync(world: World) -> None:
    """The others join again, and another one leads."""
    members = world.stable(3, extensions=True, session_ms=10_000)
    _resync(world, members, 1)
    assert world.sync(members[1]).body["assignment"] == _given(members[1], "new")
    world.keep_alive(members[1:], 9_000)
    world.advance(1_000)
    assert world.state() == "PreparingRebalance"
    _sync_all(world, _join_all(world, members[1:], extensions=True), "newer")
    assert (world.state(), world.generation()) == ("Stable", 2)


EXTENDED: tuple[Scenario, ...] = (
    assignment_fails,
    assignment_fails_and_the_leader_with_it,
    topics_change,
    topics_change_and_partitions_change_hands,
    topics_change_and_one_member_does_not_understand,
    a_join_ends_a_resync,
    coordinator_fails_in_a_resync,
    coordinator_fails_after_a_resync,
    leader_fails_in_a_resync,
)
