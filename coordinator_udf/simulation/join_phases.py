"""Finds join phases of classic groups that go on though all members have joined, or end before all have."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from coordinator_udf.groups.decisions import PLACES
from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.violation import Violation

_RESPONSE = PLACES["responses"]
_TRANSITION = PLACES["transitions"]
_COLUMNS = "seq", "ts", "group_id", "from_state", "to_state", "rule", "members", "cause_member_id"


class _Moment(NamedTuple):
    """When something happened to a group: the ``seq``, and the time in milliseconds since the epoch."""

    seq: int
    ts_ms: int


def _time(moment: _Moment) -> int:
    return moment.ts_ms


class _Phase(NamedTuple):
    """A join phase that is over.

    Attributes:
        rule: what ended it.
        was_empty: whether the group was, as it began.
        pending: who was given an id to join with, when, and hasn't joined by then; also those of later.
        is_anybody_out: whether its timer removed somebody who hasn't joined.
    """

    group_id: str
    began: _Moment
    ended: _Moment
    to_state: str
    rule: str
    was_empty: bool
    pending: Mapping[str, _Moment]
    is_anybody_out: bool


class _Answers:
    """What a world's coordinator answered to who joined, or left.

    Attributes:
        given: the ids that members of each group were given to join with, with when.
        left: when anybody left each group, or was removed by an administrator.
        turned_away_ms: when members, by group and id, were first turned away: who polls on is so again and again.
    """

    def __init__(self, history: History) -> None:
        self.given: defaultdict[str, dict[str, _Moment]] = defaultdict(dict)
        self.left: defaultdict[str, list[_Moment]] = defaultdict(list)
        self.turned_away_ms = {(it.group_id, it.member_id): it.ts_ms for it in reversed(history.turned_away)}
        for row in (row for decided in history.decisions for row in decided.responses):
            group_id, seq = row[_RESPONSE["group_id"]], row[_RESPONSE["seq"]]
            if row[_RESPONSE["error_code"]] == Errors.MEMBER_ID_REQUIRED:
                member_id = json.loads(row[_RESPONSE["body"]])["memberId"]
                self.given[group_id][member_id] = _Moment(seq, row[_RESPONSE["ts"]])
            elif row[_RESPONSE["api"]] == "LeaveGroup":
                self.left[group_id].append(_Moment(seq, row[_RESPONSE["ts"]]))


def join_phases(history: History) -> Iterator[Violation]:
    """Yields the join phases that waited for nobody, and those that didn't wait for somebody."""
    answers = _Answers(history)
    for phase in _phases(history, answers):
        if _waited_for_nobody(history, phase):
            length_ms = phase.ended.ts_ms - phase.began.ts_ms
            detail = f"nobody was missing in the join phase that ended after {length_ms} ms"
            yield Violation(phase.ended.ts_ms, phase.group_id, "waited for nobody", detail)
        for member_id in _not_waited_for(history, phase, answers):
            since_ms = phase.ended.ts_ms - phase.pending[member_id].ts_ms
            detail = f"the join phase ended {since_ms} ms after {member_id} got that id to join with"
            yield Violation(phase.ended.ts_ms, phase.group_id, "didn't wait", detail)


def _phases(history: History, answers: _Answers) -> Iterator[_Phase]:
    """Yields the join phases in the order in which they end; ``pending`` counts until the next one is asked for."""
    began: dict[str, tuple[_Moment, bool]] = {}
    out_ms: dict[str, int] = {}
    for row in history.transitions():
        seq, ts_ms, group_id, from_state, to_state, rule, members, member_id = (row[_TRANSITION[it]] for it in _COLUMNS)
        if members is None:
            if rule == GroupEvent.JOIN_EXPIRED:
                out_ms[group_id] = ts_ms
            elif rule == GroupEvent.MEMBER_ADDED:
                answers.given[group_id].pop(member_id, None)
        elif to_state == ClassicGroupState.PREPARING_REBALANCE != from_state:
            began[group_id] = _Moment(seq, ts_ms), from_state == ClassicGroupState.EMPTY
        elif from_state == ClassicGroupState.PREPARING_REBALANCE and group_id in began:
            since, was_empty = began.pop(group_id)
            ended, is_anybody_out = _Moment(seq, ts_ms), out_ms.get(group_id) == ts_ms
            yield _Phase(group_id, since, ended, to_state, rule, was_empty, answers.given[group_id], is_anybody_out)


def _waited_for_nobody(history: History, phase: _Phase) -> bool:
    """Tells whether a phase was ended by its timer, and nobody was missing in it.

    One that begins with an empty group waits for others in any case (group.initial.rebalance.delay.ms), one with static
    members for those, which stay, and any for who was given an id to join with and may still do so.
    """
    if phase.rule != GroupEvent.JOIN_EXPIRED or phase.was_empty or phase.group_id in history.with_static_members:
        return False
    since_ms, ts_ms = phase.began.ts_ms, phase.ended.ts_ms
    # As in Kafka, a full group that puts the last one out isn't told that all others have joined.
    was_full = any(it.group_id == phase.group_id and since_ms <= it.ts_ms <= ts_ms for it in history.turned_away)
    earliest_ms = ts_ms - history.longest_session_ms
    may_join = any(earliest_ms < given.ts_ms <= ts_ms for given in phase.pending.values())
    return not (phase.is_anybody_out or was_full or may_join)


def _not_waited_for(history: History, phase: _Phase, answers: _Answers) -> Iterator[str]:
    """Yields the ids that were given in a phase that ended, though not by its timer, before anybody joined with them.

    Kafka waits for those (ClassicGroup.hasAllMembersJoined), as long as they have a session, don't leave, and aren't
    turned away from a group that is full.
    """
    if phase.to_state != ClassicGroupState.COMPLETING_REBALANCE or phase.rule == GroupEvent.JOIN_EXPIRED:
        return
    left, ended_ms = answers.left[phase.group_id], phase.ended.ts_ms
    for member_id, given in phase.pending.items():
        has_session = ended_ms < given.ts_ms + history.shortest_session_ms
        if phase.began.seq < given.seq < phase.ended.seq and has_session:
            # What ends a phase, as who leaves does, is answered after it.
            may_have_left = bisect_right(left, given) < bisect_right(left, ended_ms, key=_time)
            turned_away_ms = answers.turned_away_ms.get((phase.group_id, member_id), ended_ms + 1)
            if not may_have_left and turned_away_ms > ended_ms:
                yield member_id
