"""DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

import pytest

from tests.groups.bodies import base64, subscription
from tests.groups.harness import World

T = ("t0", 0)


# -- describing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "code"), [(0, 0), (5, 0), (6, 69)])
def test_a_group_that_is_not_there_is_dead(world: World, version: int, code: int) -> None:
    (group,) = world.describe_groups("ghost", version=version)
    assert group["groupState"] == "Dead"
    assert group["errorCode"] == code
    assert group.get("errorMessage") == ("Group ghost not found." if version >= 6 else None)
    assert group["members"] == []


def test_a_stable_group_shows_its_members_with_metadata_and_assignment(world: World) -> None:
    leader, _ = world.stable(2)
    (group,) = world.describe_groups("g")
    assert group["groupState"] == "Stable"
    assert group["protocolType"] == "consumer"
    assert group["protocolData"] == "range"
    member = next(m for m in group["members"] if m["memberId"] == leader.id)
    assert member["memberMetadata"] == base64(subscription("t0"))
    assert member["memberAssignment"] == base64(b"for " + leader.id.encode())
    assert member["clientId"] == "client"
    assert member["clientHost"] == "/127.0.0.1"


def test_before_the_assignment_is_there_members_show_neither(world: World) -> None:
    world.joined(2)
    (group,) = world.describe_groups("g")
    assert group["groupState"] == "CompletingRebalance"
    assert group["protocolData"] == ""
    assert {m["memberMetadata"] for m in group["members"]} == {""}
    assert {m["memberAssignment"] for m in group["members"]} == {""}


def test_while_members_join_again_the_old_assignment_is_shown(world: World) -> None:
    leader, _ = world.stable(2)
    world.join(leader)
    (group,) = world.describe_groups("g")
    assert group["groupState"] == "PreparingRebalance"
    assert group["protocolData"] == ""
    assert {m["memberMetadata"] for m in group["members"]} == {""}
    assert "" not in {m["memberAssignment"] for m in group["members"]}


def test_a_simple_group_is_empty_and_of_no_type(world: World) -> None:
    world.commit(None, {T: 1})
    (group,) = world.describe_groups("g")
    assert group["groupState"] == "Empty"
    assert group["protocolType"] == ""


def test_an_empty_group_keeps_its_type(world: World) -> None:
    (member,) = world.stable(1)
    world.leave(member)
    (group,) = world.describe_groups("g")
    assert group["groupState"] == "Empty"
    assert group["protocolType"] == "consumer"


def test_groups_are_described_in_the_order_in_which_they_are_named(world: World) -> None:
    world.stable(1, group="b")
    assert [group["groupId"] for group in world.describe_groups("c", "b", "a", "b")] == ["c", "b", "a", "b"]


def test_the_empty_group_id_is_not_found(world: World) -> None:
    (group,) = world.describe_groups("")
    assert group["errorCode"] == 69


def test_a_group_of_which_nothing_is_in_the_log_is_not_described(world: World) -> None:
    """A commit whose only partition is refused makes a group, of which readers of the log can't know."""
    world.commit(None, {T: 1}, metadata="x" * 5_000)
    assert world.state() == "Empty"
    (group,) = world.describe_groups("g")
    assert group["groupState"] == "Dead"
    assert world.list_groups() == []


def test_it_is_once_anything_is_written(world: World) -> None:
    world.commit(None, {T: 1}, metadata="x" * 5_000)
    world.commit(None, {T: 1}, group="other")
    assert world.describe_groups("g")[0]["groupState"] == "Empty"
    assert world.list_groups() == ["g", "other"]


# -- listing ------------------------------------------------------------------------------------------------------


@pytest.fixture
def four(world: World) -> World:
    """Groups in four states."""
    world.commit(None, {T: 1}, group="empty")
    world.stable(1, group="stable", session_ms=60_000)
    world.joined(1, group="completing", session_ms=60_000, rebalance_ms=60_000)
    leader, _ = world.stable(2, group="preparing", session_ms=60_000, rebalance_ms=60_000)
    world.join(leader)
    return world


def test_all_groups_are_listed(four: World) -> None:
    assert four.list_groups() == ["completing", "empty", "preparing", "stable"]


@pytest.mark.parametrize(
    ("states", "listed"),
    [
        (["Stable"], ["stable"]),
        (["stable"], ["stable"]),
        ([" Stable "], ["stable"]),
        (["Empty", "CompletingRebalance"], ["completing", "empty"]),
        (["PREPARINGREBALANCE"], ["preparing"]),
        (["Dead"], []),
        (["Nonsense"], []),
        (["Nonsense", "Stable"], ["stable"]),
    ],
)
def test_groups_are_listed_by_state(four: World, states: list[str], listed: list[str]) -> None:
    assert four.list_groups(states=states) == listed


@pytest.mark.parametrize(
    ("types", "found"), [(["classic"], 4), (["Classic"], 4), (["consumer"], 0), (["what"], 0), (["what", "classic"], 4)]
)
def test_groups_are_listed_by_type(four: World, types: list[str], found: int) -> None:
    assert len(four.list_groups(types=types)) == found


def test_state_and_type_must_both_fit(four: World) -> None:
    assert four.list_groups(states=["Stable"], types=["consumer"]) == []


@pytest.mark.parametrize("version", range(6))
def test_each_version_lists_what_it_can_carry(world: World, version: int) -> None:
    world.stable(1)
    (group,) = world.ask("ListGroups", version, {"statesFilter": [], "typesFilter": []}).body["groups"]
    assert group["groupId"] == "g"
    assert group["protocolType"] == "consumer"
    assert group.get("groupState") == ("Stable" if version >= 4 else None)
    assert group.get("groupType") == ("classic" if version >= 5 else None)


# -- deleting -----------------------------------------------------------------------------------------------------


def test_a_group_that_is_not_there_is_not_found(world: World) -> None:
    assert world.delete_groups("ghost").errors == {"ghost": "GROUP_ID_NOT_FOUND"}


def test_a_group_with_members_is_not_empty(world: World) -> None:
    (member,) = world.stable(1)
    assert world.delete_groups("g").errors == {"g": "NON_EMPTY_GROUP"}
    assert world.heartbeat(member).error == "NONE"


def test_an_empty_group_goes_with_its_offsets(world: World) -> None:
    world.commit(None, {T: 1, ("t1", 0): 2})
    asked = world.delete_groups("g")
    assert asked.errors == {"g": "NONE"}
    assert [record.value for record in asked.records] == [None] * 3
    assert asked.records[-1].key == {"type": "GroupMetadata", "group": "g"}
    assert world.inside() is None
    assert world.fetched() == {}


def test_each_group_of_a_request_has_its_own_answer(world: World) -> None:
    world.stable(1, group="full")
    world.commit(None, {T: 1}, group="empty")
    asked = world.delete_groups("full", "empty", "ghost")
    assert asked.errors == {"full": "NON_EMPTY_GROUP", "empty": "NONE", "ghost": "GROUP_ID_NOT_FOUND"}


def test_a_group_that_is_named_twice_is_deleted_once(world: World) -> None:
    world.commit(None, {T: 1})
    asked = world.delete_groups("g", "g")
    assert asked.errors == {"g": "NONE"}
    assert len(asked.body["results"]) == 1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_deletes(world: World, version: int) -> None:
    world.commit(None, {T: 1})
    assert world.delete_groups("g", version=version).errors == {"g": "NONE"}


def test_a_deleted_group_may_come_again_and_begins_at_generation_one(world: World) -> None:
    (member,) = world.stable(1)
    world.leave(member)
    world.delete_groups("g")
    assert world.stable(1)[0].generation == 1


def test_a_group_that_waits_for_its_first_rebalance_is_not_empty(world: World) -> None:
    world.join(version=3)
    assert world.delete_groups("g").errors == {"g": "NON_EMPTY_GROUP"}


def test_a_group_that_only_gave_out_ids_is_empty(world: World) -> None:
    (pending,) = world.new_ids(1)
    assert world.delete_groups("g").errors == {"g": "NONE"}
    assert world.join(pending).error == "UNKNOWN_MEMBER_ID"
