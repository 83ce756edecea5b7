"""The classic group's transitions: every pair of a state and an event, and the page that shows them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_udf.groups.context import Context
from coordinator_udf.groups.model.classic import ClassicGroup
from coordinator_udf.groups.model.classic_states import (
    CAN_REBALANCE,
    TRANSITIONS,
    ClassicGroupState,
    GroupEvent,
    IllegalTransition,
    next_state,
)
from coordinator_udf.groups.model.timers import Timers
from coordinator_udf.settings.coordinator import Settings
from tests.conftest import ROOT

S = ClassicGroupState
PAIRS = [(state, event) for state in S for event in GroupEvent]

#: From where a state can be reached, as Kafka has it (ClassicGroupState.validPreviousStates), Dead aside.
PREVIOUS = {
    S.EMPTY: {S.PREPARING_REBALANCE},
    S.PREPARING_REBALANCE: {S.STABLE, S.COMPLETING_REBALANCE, S.EMPTY},
    S.COMPLETING_REBALANCE: {S.PREPARING_REBALANCE},
    S.STABLE: {S.COMPLETING_REBALANCE},
}


#: What the extensions of the proposal of 2015 do without another state.
STAYING = {GroupEvent.LEADER_SYNC_FAILED, GroupEvent.LEADER_RESYNCED, GroupEvent.RESYNC_COMPLETED}


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_every_event_in_every_state_moves_the_group_or_is_illegal(state: S, event: GroupEvent) -> None:
    ctx = Context(Settings(), Timers())
    ctx.now_ms = 7
    group = ClassicGroup(group_id="g", state=state)
    if (state, event) in TRANSITIONS:
        ctx.move(group, event)
        assert group.state is TRANSITIONS[state, event]
        assert group.previous_state is state
        assert group.state_timestamp == 7
        assert len(ctx.decisions.transitions) == 1
    else:
        with pytest.raises(IllegalTransition, match=f"group 'g' in state {state} can't take the event {event}"):
            ctx.move(group, event)
        assert group.state is state
        assert ctx.decisions.transitions == []


def test_a_state_is_reached_from_where_kafka_allows_it() -> None:
    reached: dict[S, set[S]] = {}
    for (state, event), target in TRANSITIONS.items():
        if event not in STAYING:
            reached.setdefault(target, set()).add(state)
    assert reached.pop(S.DEAD) == set(PREVIOUS)
    assert reached == PREVIOUS


def test_what_goes_on_in_a_state_keeps_it() -> None:
    assert all(state is target for (state, event), target in TRANSITIONS.items() if event in STAYING)


def test_a_rebalance_may_begin_where_kafka_allows_it() -> None:
    assert {S.EMPTY, S.STABLE, S.COMPLETING_REBALANCE} == CAN_REBALANCE


def test_nothing_moves_a_dead_group() -> None:
    assert not [key for key in TRANSITIONS if key[0] is S.DEAD]


@given(st.lists(st.sampled_from(GroupEvent), max_size=30))
def test_any_row_of_events_ends_in_a_state_or_stops_at_the_illegal_one(events: list[GroupEvent]) -> None:
    state = S.EMPTY
    for event in events:
        try:
            state = next_state("g", state, event)
        except IllegalTransition:
            assert (state, event) not in TRANSITIONS
            return
    assert state in S


def test_the_page_shows_the_table() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "scripts" / "draw_states", "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr
