"""The table of states: Kafka's, complete, and as the page has it."""

from __future__ import annotations

import re

import pytest

from coordinator_udf.members.consumer.states import (
    TAKES_ASSIGNMENT,
    TRANSITIONS,
    WITHOUT_HEARTBEATS,
    MemberEvent,
    MemberState,
    next_state,
)
from coordinator_udf.members.exceptions import ClientException
from tests.conftest import ROOT

S = MemberState

#: From where each state may be entered in Kafka (MemberState.previousValidStates).
KAFKA = {
    S.STABLE: {S.JOINING, S.ACKNOWLEDGING, S.RECONCILING},
    S.RECONCILING: {S.STABLE, S.JOINING, S.ACKNOWLEDGING, S.RECONCILING},
    S.ACKNOWLEDGING: {S.RECONCILING},
    S.FATAL: {S.JOINING, S.STABLE, S.RECONCILING, S.ACKNOWLEDGING, S.PREPARE_LEAVING, S.LEAVING, S.UNSUBSCRIBED},
    S.FENCED: {S.JOINING, S.STABLE, S.RECONCILING, S.ACKNOWLEDGING, S.PREPARE_LEAVING, S.LEAVING},
    S.JOINING: {S.FENCED, S.UNSUBSCRIBED, S.STALE},
    S.PREPARE_LEAVING: {S.JOINING, S.STABLE, S.RECONCILING, S.ACKNOWLEDGING, S.UNSUBSCRIBED},
    S.LEAVING: {S.PREPARE_LEAVING},
    S.UNSUBSCRIBED: {S.PREPARE_LEAVING, S.LEAVING, S.FENCED},
    S.STALE: {S.LEAVING},
}
#: What Kafka would allow and none of its code does.
UNUSED = {
    (S.PREPARE_LEAVING, S.FENCED),
    (S.LEAVING, S.FENCED),
    (S.UNSUBSCRIBED, S.PREPARE_LEAVING),
    (S.PREPARE_LEAVING, S.UNSUBSCRIBED),
}
PAGE = (ROOT / "docs" / "kip-848-member.md").read_text("utf-8")
#: The states of the design document: of the group, of the member, of the rebalance.
DOCUMENT = [
    *("UNJOINED", "PREPARE", "ASSIGN", "COMPLETE", "STABLE"),
    *("NEW", "JOINING", "JOINED", "ASSIGNING", "TERMINATING", "TERMINATED"),
    *("NOT_IN_GROUP", "RECONCILING", "RECONCILIATION_COMPLETE", "FATAL"),
    *("RELEASING_ASSIGNMENT", "RELEASING_ASSIGNMENT_COMPLETE"),
]


def test_the_ways_are_kafkas() -> None:
    ours = {(source, target) for (source, _), target in TRANSITIONS.items() if source is not target}
    kafkas = {(source, target) for target, sources in KAFKA.items() for source in sources if source is not target}
    assert kafkas - ours == UNUSED
    assert ours <= kafkas


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("event", MemberEvent)
def test_an_event_is_in_the_table_or_an_illegal_state_exception(state: MemberState, event: MemberEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
        return
    with pytest.raises(ClientException) as raised:
        next_state(state, event)
    assert raised.value.class_name == "IllegalStateException"


def test_every_state_can_be_reached_and_every_state_but_the_last_left() -> None:
    reached = {S.UNSUBSCRIBED}
    while more := {target for (source, _), target in TRANSITIONS.items() if source in reached} - reached:
        reached |= more
    assert reached == set(MemberState)
    assert {source for (source, _), target in TRANSITIONS.items() if source is not target} == set(S) - {S.FATAL}


def test_an_assignment_counts_where_kafka_can_handle_one() -> None:
    assert KAFKA[S.RECONCILING] == TAKES_ASSIGNMENT
    assert not TAKES_ASSIGNMENT & WITHOUT_HEARTBEATS


def _rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_page_describes_each_state_once() -> None:
    assert [row[0] for row in _rows("The states")] == [state.value for state in sorted(S, key=_in_page)]


def _in_page(state: MemberState) -> int:
    return PAGE.index(f"\n| {state.value} | ")


def test_the_page_says_of_each_state_of_the_document_what_became_of_it() -> None:
    rows = _rows("The document's states and what became of them")
    named = {name for row in rows for name in re.findall(r"[A-Z_]{3,}", row[0])} - {"TBD"}
    assert named == set(DOCUMENT)
    shipped = {name for row in rows for name in re.findall(r"[A-Z_]{3,}", row[1])}
    assert shipped == {state.value for state in MemberState}


def test_the_files_that_the_page_names_are_there() -> None:
    rooms = ROOT / "coordinator_udf" / "members"
    for name in set(re.findall(r"`(\w+\.py)`", PAGE)):
        assert list(rooms.rglob(name)), name
