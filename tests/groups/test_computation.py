"""Who is asked to compute, as a function of who there is."""

from __future__ import annotations

from coordinator_udf.groups.consumer.client_assignors import Choice
from coordinator_udf.groups.consumer.computation import (
    MOST_DEPARTURES,
    assign_to_member,
    failed,
    has_successor,
    late,
    told,
    with_departures,
)
from coordinator_udf.groups.model.client_assignment import Computation

THREE = Choice("turns", 1, ("a", "b", "c"))


def chosen(computation: Computation | None, choice: Choice = THREE, epoch: int = 5, asking: str = "") -> Computation:
    found = assign_to_member(computation, choice, epoch, asking=asking)
    assert found is not None
    return found


def test_who_asks_is_chosen_if_it_can_and_else_the_first() -> None:
    assert chosen(None, asking="b").member_id == "b"
    assert chosen(None, asking="nobody").member_id == "a"


def test_who_is_chosen_stays_it() -> None:
    first = told(chosen(None, asking="b"), 7)
    assert chosen(first, epoch=9, asking="a") == first


def test_each_gets_its_turn_before_one_is_asked_twice() -> None:
    computation, asked = chosen(None), []
    for _ in range(4):
        asked.append(computation.member_id)
        computation = chosen(late(computation))
    assert asked == ["a", "b", "c", "a"]


def test_who_was_late_is_asked_again_before_who_failed() -> None:
    computation = chosen(late(chosen(None)))
    computation = chosen(failed(computation, 5, 7, refused=False))
    computation = chosen(failed(computation, 5, 7, refused=True))
    assert (computation.member_id, computation.refusals) == ("a", 1)
    assert has_successor(computation, THREE)
    assert not has_successor(failed(computation, 5, 7, refused=False), THREE)


def test_another_epoch_or_assignor_forgives_failures() -> None:
    computation = failed(chosen(None, Choice("turns", 1, ("a",))), 5, 7, refused=False)
    assert chosen(computation, Choice("turns", 1, ("a",)), epoch=6).member_id == "a"
    other = chosen(computation, Choice("range", 1, ("a",)))
    assert (other.member_id, other.error) == ("a", 0)


def test_nobody_is_chosen_while_nobody_can() -> None:
    assert chosen(None, Choice("turns", 1, ())).member_id == ""
    assert assign_to_member(chosen(None), None, 5) is None


def test_departures_have_an_end() -> None:
    computation = chosen(None)
    for epoch in range(MOST_DEPARTURES + 5):
        computation = with_departures(computation, [f"m{epoch}"], epoch)
    assert len(computation.departures) == MOST_DEPARTURES
    assert computation.departures[-1].member_id == f"m{MOST_DEPARTURES + 4}"
