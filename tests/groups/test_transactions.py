"""Offsets that are committed with a producer's transaction."""

from __future__ import annotations

import pytest

from tests.groups.harness import Member, World

T = ("t0", 0)


def test_a_pending_offset_is_not_told_before_its_transaction_ends(world: World) -> None:
    assert world.txn_commit({T: 5}).errors == {T: "NONE"}
    assert world.fetched() == {}
    world.end_txn(committed=True)
    assert world.fetched() == {T: 5}


def test_an_aborted_transaction_leaves_nothing(world: World) -> None:
    world.commit(None, {T: 1})
    world.txn_commit({T: 5})
    world.end_txn(committed=False)
    assert world.fetched() == {T: 1}


@pytest.mark.parametrize("version", range(6))
def test_every_version_commits(world: World, version: int) -> None:
    assert world.txn_commit({T: 5}, version=version).errors == {T: "NONE"}


def test_the_record_names_the_producer(world: World) -> None:
    (record,) = world.txn_commit({T: 5}, producer=7).records
    assert record.producer_id == 7
    assert record.value is not None
    assert "topicId" not in record.value


def test_who_requires_stable_offsets_is_told_to_come_again(world: World) -> None:
    world.commit(None, {T: 1, ("t0", 1): 2})
    world.txn_commit({T: 5})
    (group,) = world.fetch("g", [T, ("t0", 1), ("t0", 2)], stable=True).body["groups"]
    (topic,) = group["topics"]
    told = {part["partitionIndex"]: (part["errorCode"], part["committedOffset"]) for part in topic["partitions"]}
    assert told == {0: (88, -1), 1: (0, 2), 2: (0, -1)}


def test_who_does_not_gets_the_last_committed_one(world: World) -> None:
    world.commit(None, {T: 1})
    world.txn_commit({T: 5})
    assert world.fetched() == {T: 1}


def test_once_the_transaction_has_ended_offsets_are_stable(world: World) -> None:
    world.txn_commit({T: 5})
    world.end_txn(committed=False)
    (group,) = world.fetch("g", [T], stable=True).body["groups"]
    assert group["topics"][0]["partitions"][0]["errorCode"] == 0


def test_an_offset_committed_after_the_pending_one_stays_when_the_transaction_is_committed(world: World) -> None:
    world.txn_commit({T: 5})
    world.commit(None, {T: 9})
    world.end_txn(committed=True)
    assert world.fetched() == {T: 9}


def test_an_offset_committed_before_the_pending_one_gives_way(world: World) -> None:
    world.commit(None, {T: 9})
    world.txn_commit({T: 5})
    world.end_txn(committed=True)
    assert world.fetched() == {T: 5}


def test_of_two_commits_in_one_transaction_the_later_counts(world: World) -> None:
    world.txn_commit({T: 5})
    world.txn_commit({T: 6})
    world.end_txn(committed=True)
    assert world.fetched() == {T: 6}


def test_of_two_producers_the_one_whose_commit_came_later_wins_whichever_ends_last(world: World) -> None:
    world.txn_commit({T: 5}, producer=1)
    world.txn_commit({T: 6}, producer=2)
    world.end_txn(committed=True, producer=2)
    world.end_txn(committed=True, producer=1)
    assert world.fetched() == {T: 6}


def test_one_producers_end_is_not_the_others(world: World) -> None:
    world.txn_commit({T: 5}, producer=1)
    world.txn_commit({("t0", 1): 6}, producer=2)
    world.end_txn(committed=True, producer=1)
    assert world.fetched() == {T: 5}
    (group,) = world.fetch("g", [("t0", 1)], stable=True).body["groups"]
    assert group["topics"][0]["partitions"][0]["errorCode"] == 88


def test_a_transaction_spans_groups(world: World) -> None:
    world.txn_commit({T: 5}, group="a")
    world.txn_commit({T: 6}, group="b")
    world.end_txn(committed=True)
    assert (world.fetched("a"), world.fetched("b")) == ({T: 5}, {T: 6})


def test_a_transaction_that_ends_without_commits_changes_nothing(world: World) -> None:
    world.end_txn(committed=True)
    assert world.list_groups() == []


def test_a_member_commits_in_a_transaction(world: World) -> None:
    (member,) = world.stable(1)
    assert world.txn_commit({T: 5}, member=member).errors == {T: "NONE"}


@pytest.mark.parametrize(
    ("member_id", "generation", "error"),
    [("stranger", 1, "UNKNOWN_MEMBER_ID"), ("", 1, "UNKNOWN_MEMBER_ID"), ("me", 7, "ILLEGAL_GENERATION")],
)
def test_a_member_is_checked(world: World, member_id: str, generation: int, error: str) -> None:
    (member,) = world.stable(1)
    who = Member(member.id if member_id == "me" else member_id, generation)
    assert world.txn_commit({T: 5}, member=who).errors == {T: error}


def test_without_membership_a_transaction_may_commit_to_a_group_with_members(world: World) -> None:
    world.stable(1)
    assert world.txn_commit({T: 5}).errors == {T: "NONE"}


def test_while_the_assignment_is_awaited_transactions_may_commit(world: World) -> None:
    (member,) = world.joined(1)
    assert world.txn_commit({T: 5}, member=member).errors == {T: "NONE"}


def test_the_empty_group_id_is_invalid(world: World) -> None:
    assert world.txn_commit({T: 5}, group="").errors == {T: "INVALID_GROUP_ID"}


def test_a_commit_in_a_transaction_does_not_keep_the_session(world: World) -> None:
    (member,) = world.stable(1, session_ms=6_000)
    world.advance(5_000)
    world.txn_commit({T: 5}, member=member)
    world.advance(1_000)
    assert world.members() == []


def test_a_member_of_a_group_that_is_not_there_is_of_an_illegal_generation(world: World) -> None:
    assert world.txn_commit({T: 5}, member=Member("m", 3)).errors == {T: "ILLEGAL_GENERATION"}


def test_a_group_with_an_open_transaction_is_deleted_with_it(world: World) -> None:
    world.txn_commit({T: 5})
    asked = world.delete_groups("g")
    assert asked.errors == {"g": "NONE"}
    assert [record.value for record in asked.records] == [None, None]
    world.end_txn(committed=True)
    assert world.fetched() == {}
