"""JoinGroup: who becomes a member, who is sent back, and what the answer says."""

from __future__ import annotations

import pytest

from tests.groups.bodies import base64, subscription
from tests.groups.conftest import Worlds
from tests.groups.harness import Member, World


def test_somebody_with_an_id_is_unknown_in_a_group_that_is_not_there(world: World) -> None:
    asked = world.join("stranger")
    assert asked.error == "UNKNOWN_MEMBER_ID"
    assert asked.body["memberId"] == "stranger"
    assert world.inside() is None


def test_somebody_with_an_id_is_unknown_in_a_stable_group(world: World) -> None:
    world.stable(1)
    asked = world.join("stranger")
    assert asked.error == "UNKNOWN_MEMBER_ID"
    assert asked.body["protocolName"] is None


def test_a_new_member_is_sent_back_for_the_id_that_it_is_given(world: World) -> None:
    asked = world.join(client="me")
    assert asked.error == "MEMBER_ID_REQUIRED"
    assert asked.body["memberId"].startswith("me-")
    inside = world.inside()
    assert inside is not None
    assert inside["state"] == "Empty"
    assert inside["pendingJoinMembers"] == [asked.body["memberId"]]


def test_the_first_request_of_a_new_group_writes_an_empty_group(world: World) -> None:
    (record,) = world.join().records
    assert record.key == {"type": "GroupMetadata", "group": "g"}
    assert record.value is not None
    assert record.value["members"] == []
    assert record.value["generation"] == 0


def test_a_member_that_comes_back_with_its_id_waits_for_the_initial_delay(world: World) -> None:
    member = world.join().body["memberId"]
    asked = world.join(member)
    assert asked.waits
    assert world.state() == "PreparingRebalance"
    world.advance(2_999)
    assert asked.waits
    world.advance(1)
    assert asked.error == "NONE"
    assert asked.by is None
    assert asked.after_ms == 3_000


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_new_member_joins_at_once(world: World, version: int) -> None:
    asked = world.join(version=version)
    assert asked.waits
    world.advance(3_000)
    assert asked.error == "NONE"
    assert ("throttleTimeMs" in asked.body) == (version >= 2)


def test_in_version_0_the_session_timeout_is_the_rebalance_timeout_too(world: World) -> None:
    world.join(version=0, session_ms=7_000)
    inside = world.inside()
    assert inside is not None
    assert inside["members"][0]["rebalanceTimeoutMs"] == 7_000


def test_the_first_to_join_leads_and_learns_of_all_members(world: World) -> None:
    leader, follower = world.joined(2)
    assert leader.id == leader.leader == follower.leader
    assert leader.generation == follower.generation == 1
    answers = {a.body["memberId"]: a.body for a in world.answers.values() if a.body.get("generationId") == 1}
    assert sorted(m["memberId"] for m in answers[leader.id]["members"]) == sorted([leader.id, follower.id])
    assert answers[leader.id]["members"][0]["metadata"] == base64(subscription("t0"))
    assert answers[follower.id]["members"] == []


@pytest.mark.parametrize(("version", "named"), [(6, False), (7, True), (9, True)])
def test_from_version_7_on_the_answer_names_the_protocol_type(world: World, version: int, named: bool) -> None:
    asked = world.join(world.join(version=version).body["memberId"], version=version)
    world.advance(3_000)
    assert ("protocolType" in asked.body) == named
    assert asked.body["protocolName"] == "range"


@pytest.mark.parametrize(("version", "said"), [(6, ""), (7, None)])
def test_a_refused_join_names_no_protocol_in_the_way_of_its_version(
    world: World, version: int, said: str | None
) -> None:
    assert world.join("stranger", version=version).body["protocolName"] == said


def test_the_empty_group_id_is_invalid(world: World) -> None:
    assert world.join(group="").error == "INVALID_GROUP_ID"


@pytest.mark.parametrize(("session_ms", "error"), [(5_999, "INVALID_SESSION_TIMEOUT"), (6_000, "MEMBER_ID_REQUIRED")])
def test_a_session_shorter_than_the_setting_is_refused(world: World, session_ms: int, error: str) -> None:
    assert world.join(session_ms=session_ms).error == error


@pytest.mark.parametrize(("session_ms", "error"), [(30_001, "INVALID_SESSION_TIMEOUT"), (30_000, "MEMBER_ID_REQUIRED")])
def test_a_session_longer_than_the_setting_is_refused(worlds: Worlds, session_ms: int, error: str) -> None:
    assert worlds({"group.max.session.timeout.ms": 30_000}).join(session_ms=session_ms).error == error


def test_an_invalid_group_id_is_noticed_before_an_invalid_session(world: World) -> None:
    assert world.join(group="", session_ms=1).error == "INVALID_GROUP_ID"


def test_an_empty_list_of_protocols_is_inconsistent(world: World) -> None:
    assert world.join(protocols=()).error == "INCONSISTENT_GROUP_PROTOCOL"


def test_an_empty_protocol_type_is_inconsistent(world: World) -> None:
    assert world.join(type_="").error == "INCONSISTENT_GROUP_PROTOCOL"


def test_a_refused_first_join_leaves_an_empty_group(world: World) -> None:
    world.join(type_="")
    assert world.state() == "Empty"
    assert world.describe_groups("g")[0]["groupState"] == "Empty"


def test_another_protocol_type_is_inconsistent_with_the_groups(world: World) -> None:
    world.stable(1)
    assert world.join(type_="connect").error == "INCONSISTENT_GROUP_PROTOCOL"


def test_a_second_member_without_a_common_protocol_is_inconsistent(world: World) -> None:
    world.stable(1)
    assert world.join(protocols=("sticky",)).error == "INCONSISTENT_GROUP_PROTOCOL"


def test_a_member_that_comes_again_without_a_common_protocol_is_inconsistent(world: World) -> None:
    member, other = world.stable(2)
    asked = world.join(member, protocols=("sticky",))
    assert asked.error == "INCONSISTENT_GROUP_PROTOCOL"
    assert asked.body["memberId"] == member.id
    assert world.state() == "Stable"
    assert world.heartbeat(other).error == "NONE"


def test_the_only_member_may_not_come_again_with_other_protocols_only(world: World) -> None:
    (member,) = world.stable(1)
    assert world.join(member, protocols=("sticky",)).error == "INCONSISTENT_GROUP_PROTOCOL"


def test_the_protocol_that_all_support_and_most_prefer_is_chosen(world: World) -> None:
    ids = world.new_ids(3, protocols=("range", "sticky"))
    preferences = [("range", "sticky"), ("sticky", "range"), ("sticky", "range", "own")]
    asked = [world.join(id_, protocols=names) for id_, names in zip(ids, preferences, strict=True)]
    world.advance(3_000)
    world.advance(3_000)
    assert {one.body["protocolName"] for one in asked} == {"sticky"}


def test_a_rolling_change_of_the_strategy_needs_no_downtime(world: World) -> None:
    """One bounce adds the new protocol beside the old one, a second one drops the old: always a common one is left."""
    leader, follower = world.stable(2, protocols=("range",))
    chosen = []
    for bounced in (("sticky", "range"), ("sticky",)):
        mates = ("sticky", "range") if bounced == ("sticky",) else ("range",)
        for leaders, followers in ((bounced, mates), (bounced, bounced)):
            asked = world.join(leader, protocols=leaders), world.join(follower, protocols=followers)
            assert [one.error for one in asked] == ["NONE", "NONE"]
            leader, follower = (one.member for one in asked)
            chosen.append(asked[0].body["protocolName"])
            world.synced([leader, follower], protocol=chosen[-1])
    assert chosen == ["range", "sticky", "sticky", "sticky"]


def test_a_follower_that_comes_again_unchanged_gets_the_same_generation_and_no_rebalance(world: World) -> None:
    leader, follower = world.stable(2)
    asked = world.join(follower)
    assert asked.error == "NONE"
    assert asked.member.generation == 1
    assert asked.body["leader"] == leader.id
    assert asked.body["members"] == []
    assert world.state() == "Stable"


def test_a_leader_that_comes_again_unchanged_begins_a_rebalance(world: World) -> None:
    leader, follower = world.stable(2)
    asked = world.join(leader)
    assert asked.waits
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(follower).error == "REBALANCE_IN_PROGRESS"


def test_a_follower_with_other_metadata_begins_a_rebalance(world: World) -> None:
    _, follower = world.stable(2)
    assert world.join(follower, protocols={"range": subscription("t1")}).waits
    assert world.state() == "PreparingRebalance"


def test_a_follower_with_other_timeouts_only_begins_none_and_keeps_its_old_ones(world: World) -> None:
    _, follower = world.stable(2)
    assert world.join(follower, session_ms=29_000).error == "NONE"
    inside = world.inside()
    assert inside is not None
    assert {member["sessionTimeoutMs"] for member in inside["members"]} == {10_000}


def test_while_the_assignment_is_awaited_an_unchanged_leader_gets_its_answer_again(world: World) -> None:
    leader, follower = world.joined(2)
    again = world.join(leader)
    assert again.error == "NONE"
    assert len(again.body["members"]) == 2
    assert world.join(follower).body["members"] == []
    assert world.state() == "CompletingRebalance"


def test_while_the_assignment_is_awaited_a_changed_member_begins_a_rebalance(world: World) -> None:
    leader, follower = world.joined(2)
    parked = world.sync(follower)
    assert world.join(leader, protocols={"range": subscription("t1")}).waits
    assert parked.error == "REBALANCE_IN_PROGRESS"
    assert world.state() == "PreparingRebalance"


def test_while_the_assignment_is_awaited_a_new_member_begins_a_rebalance(world: World) -> None:
    _, follower = world.joined(2)
    parked = world.sync(follower)
    world.join(world.new_ids(1)[0])
    assert parked.error == "REBALANCE_IN_PROGRESS"
    assert parked.body["assignment"] == ""


def test_a_rebalance_completes_when_the_last_member_has_joined_again(world: World) -> None:
    leader, follower = world.stable(2)
    first, second = world.join(leader), world.join(follower)
    assert first.by == second.by == second.request_id
    assert first.member.generation == second.member.generation == 2


def test_the_generation_grows_by_one_with_each_rebalance(world: World) -> None:
    (member,) = world.stable(1)
    for generation in (2, 3, 4):
        asked = world.join(member)
        assert asked.member.generation == generation
        member = asked.member
        world.synced([member])


def test_a_join_that_is_repeated_while_it_waits_takes_the_place_of_the_first(world: World) -> None:
    leader, follower = world.stable(2)
    first, second = world.join(leader), world.join(leader)
    assert first.waits
    assert second.waits
    world.join(follower)
    assert first.waits
    assert second.error == "NONE"


def test_a_pending_member_may_not_bring_an_instance_id(world: World) -> None:
    (id_,) = world.new_ids(1)
    assert world.join(id_, instance="i").error == "UNKNOWN_SERVER_ERROR"


def test_a_pending_member_with_another_protocol_type_is_inconsistent_with_a_group_that_has_one(world: World) -> None:
    world.stable(1)
    (id_,) = world.new_ids(1)
    assert world.join(id_, type_="connect").error == "INCONSISTENT_GROUP_PROTOCOL"


def test_groups_of_other_protocol_types_are_coordinated_alike(world: World) -> None:
    leader, follower = world.joined(2, type_="connect", protocols={"p": b"\x00\x01"})
    parked = world.sync(follower, type_="connect", protocol="p")
    world.sync(leader, {follower.id: b"f"}, type_="connect", protocol="p")
    assert parked.body["assignment"] == base64(b"f")
    assert parked.body["protocolType"] == "connect"


def test_a_member_whose_subscription_is_garbage_joins_all_the_same(world: World) -> None:
    (member,) = world.stable(1, protocols={"range": b"\xff\xff\x01"})
    assert world.heartbeat(member).error == "NONE"


def test_client_id_and_host_stand_in_the_member(world: World) -> None:
    world.ask(
        "JoinGroup",
        3,
        {
            "groupId": "g",
            "sessionTimeoutMs": 6_000,
            "rebalanceTimeoutMs": 6_000,
            "memberId": "",
            "protocolType": "consumer",
            "protocols": [{"name": "range", "metadata": ""}],
        },
        client="my client",
        host="/10.1.2.3",
    )
    inside = world.inside()
    assert inside is not None
    assert inside["members"][0]["clientId"] == "my client"
    assert inside["members"][0]["clientHost"] == "/10.1.2.3"


def test_a_member_that_left_is_unknown_when_it_joins_with_its_old_id(world: World) -> None:
    leader, follower = world.stable(2)
    world.leave(follower)
    assert world.join(follower).error == "UNKNOWN_MEMBER_ID"
    assert world.join(leader).error == "NONE"


def test_a_member_is_known_by_its_id_in_its_group_only(world: World) -> None:
    (member,) = world.stable(1, group="a")
    world.stable(1, group="b")
    assert world.join(Member(member.id, 1, None, "b")).error == "UNKNOWN_MEMBER_ID"
