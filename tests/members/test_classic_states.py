"""Every pair of a classic member's state and event, and that recordings show no other way."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise, product

import pytest

from coordinator_udf.members.classic.membership import Generation, Membership
from coordinator_udf.members.classic.states import (
    NOT_JOINED,
    REBALANCING,
    STEADY,
    TRANSITIONS,
    IllegalTransition,
    MemberEvent,
    MemberState,
    next_state,
)
from tests.conftest import shared

_S, _E = MemberState, MemberEvent
PAIRS = list(product(MemberState, MemberEvent))


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_a_pair_is_in_the_table_or_an_error(state: MemberState, event: MemberEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalTransition, match=f"{state}.*{event}"):
            next_state(state, event)


def test_answers_count_only_while_they_are_awaited() -> None:
    refused = {pair for pair in PAIRS if pair not in TRANSITIONS}
    assert refused == {
        *((state, _E.JOIN_ANSWERED) for state in _S if state is not _S.PREPARING_REBALANCE),
        *((state, _E.SYNC_ANSWERED) for state in _S if state not in {_S.COMPLETING_REBALANCE, _S.RESYNCING}),
        *((state, event) for state in _S if state not in STEADY for event in (_E.RESYNC_TOLD, _E.RESYNC_BEGUN)),
        *((state, _E.RESYNC_FAILED) for state in _S if state is not _S.RESYNCING),
    }


def test_the_sets_of_states_are_kafkas() -> None:
    assert {_S.UNJOINED, _S.PREPARING_REBALANCE} == NOT_JOINED
    assert {_S.PREPARING_REBALANCE, _S.COMPLETING_REBALANCE} == REBALANCING


def _brought_to(state: MemberState) -> Membership:
    membership = Membership()
    if state is not _S.UNJOINED:
        membership.join_sent()
    if state in {_S.COMPLETING_REBALANCE, _S.STABLE, _S.RESYNCING}:
        membership.join_answered(Generation(3, "m-1", "range"))
    if state in {_S.STABLE, _S.RESYNCING}:
        membership.sync_answered()
    if state is _S.RESYNCING:
        membership.resync_begun()
    assert membership.state is state
    return membership


@pytest.mark.parametrize("state", MemberState)
def test_an_illegal_generation_keeps_the_member_id_and_an_unknown_member_does_not(state: MemberState) -> None:
    kept, lost = _brought_to(state), _brought_to(state)
    member_id = kept.generation.member_id
    kept.generation_lost("HEARTBEAT", 22, keep_member_id=True)
    lost.generation_lost("HEARTBEAT", 25, keep_member_id=False)
    assert kept.generation == Generation(-1, member_id, None)
    assert lost.generation == Generation()
    for membership in (kept, lost):
        assert membership.state is _S.UNJOINED
        assert membership.rejoin_needed
        assert membership.needs_join_prepare
    assert kept.rejoin_reason == "encountered ILLEGAL_GENERATION from HEARTBEAT response"


def test_only_a_good_sync_clears_the_reason() -> None:
    membership = _brought_to(_S.COMPLETING_REBALANCE)
    membership.request_rejoin("first")
    membership.request_rejoin_if_necessary("second")
    assert membership.rejoin_reason == "first"
    membership.sync_answered()
    assert (membership.rejoin_reason, membership.rejoin_needed) == ("", False)


def test_recorded_members_change_state_as_the_table_has_it() -> None:
    """Within one input there may be several transitions, so what is compared is reachability."""
    steps = {(state, target) for (state, _), target in TRANSITIONS.items()}
    reach = set(steps)
    while more := {(a, d) for a, b in reach for c, d in steps if b is c} - reach:
        reach |= more
    seen = set()
    for path in shared("oracle-member", "traces").glob("member-classic*.gz"):
        lines = (json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines())
        states = [MemberState(line["state"]) for line in lines if line["type"] == "state"]
        seen |= {pair for pair in pairwise(states) if pair[0] is not pair[1]}
    assert len(seen) > 6
    assert seen <= reach
