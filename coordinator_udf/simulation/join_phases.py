"""Finds join phases of classic groups that go on though all members have joined, or end before all have."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from coordinator_udf.groups.decisions import PLACES, Row
from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.violation import Violation

_RESPONSE = PLACES["responses"]
_TRANSITION = PLACES["transitions"]
_COLUMNS = "ts", "group_id", "from_state", "to_state", "rule", "members", "cause_member_id"


def waits_for_nobody(history: History) -> Iterator[Violation]:
    """Yields the join phases that their timer ended, and in which nobody was missing.

    One that begins with an empty group waits for others in any case (group.initial.rebalance.delay.ms), one with static
    members for those, which stay, and any for who was given an id to join with and may still do so.
    """
    began: dict[str, tuple[int, bool]] = {}
    missing: dict[str, set[int]] = defaultdict(set)
    added: dict[str, set[str]] = defaultdict(set)
    for row in history.transitions():
        ts_ms, group_id, from_state, to_state, rule, members, member_id = (row[_TRANSITION[it]] for it in _COLUMNS)
        if members is None:
            if rule == GroupEvent.JOIN_EXPIRED:
                missing[group_id].add(ts_ms)
            elif rule == GroupEvent.MEMBER_ADDED:
                added[group_id].add(member_id)
        elif to_state == ClassicGroupState.PREPARING_REBALANCE != from_state:
            began[group_id] = ts_ms, from_state == ClassicGroupState.EMPTY
        elif from_state == ClassicGroupState.PREPARING_REBALANCE and group_id in began:
            since_ms, was_empty = began.pop(group_id)
            if rule != GroupEvent.JOIN_EXPIRED or was_empty or group_id in history.with_static_members:
                continue
            # As in Kafka, a full group that puts the last one out isn't told that all others have joined.
            was_full = any(it.group_id == group_id and since_ms <= it.ts_ms <= ts_ms for it in history.turned_away)
            is_excused = was_full or _has_pending(history, group_id, ts_ms, added[group_id])
            if ts_ms not in missing[group_id] and not is_excused:
                detail = f"nobody was missing in the join phase that ended after {ts_ms - since_ms} ms"
                yield Violation(ts_ms, group_id, "waited for nobody", detail)


def waits_for_too_few(history: History) -> Iterator[Violation]:
    """Yields the join phases that end, though not by their timer, before somebody joins who was given an id in them.

    Kafka waits for those (ClassicGroup.hasAllMembersJoined), as long as they have a session, don't leave, and aren't
    turned away from a group that is full.
    """
    given, left = _ids_given(history), _times_left(history)
    # One that polls on is turned away again and again.
    turned_away = {(one.group_id, one.member_id): one.ts_ms for one in reversed(history.turned_away)}
    began: dict[str, int] = {}
    for row in history.transitions():
        ts_ms, group_id, from_state, to_state, rule, members, member_id = (row[_TRANSITION[it]] for it in _COLUMNS)
        seq = row[_TRANSITION["seq"]]
        if members is None:
            if rule == GroupEvent.MEMBER_ADDED:
                given[group_id].pop(member_id, None)
        elif to_state == ClassicGroupState.PREPARING_REBALANCE != from_state:
            began[group_id] = seq
        elif from_state == ClassicGroupState.PREPARING_REBALANCE and group_id in began:
            since = began.pop(group_id)
            if to_state != ClassicGroupState.COMPLETING_REBALANCE or rule == GroupEvent.JOIN_EXPIRED:
                continue
            for pending, (given_seq, given_ms) in given[group_id].items():
                has_session = ts_ms < given_ms + history.shortest_session_ms
                if not (since < given_seq < seq and has_session):
                    continue
                may_have_left = bisect_left(left[group_id], given_seq) < bisect_left(left[group_id], seq)
                if not may_have_left and turned_away.get((group_id, pending), ts_ms + 1) > ts_ms:
                    detail = f"the join phase ended {ts_ms - given_ms} ms after {pending} got that id to join with"
                    yield Violation(ts_ms, group_id, "didn't wait", detail)


def _ids_given(history: History) -> defaultdict[str, dict[str, tuple[int, int]]]:
    """Returns the ids that members of each group were given to join with, with when: the ``seq`` and the time."""
    given: defaultdict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for row in _responses(history):
        if row[_RESPONSE["error_code"]] == Errors.MEMBER_ID_REQUIRED:
            member_id = json.loads(row[_RESPONSE["body"]])["memberId"]
            given[row[_RESPONSE["group_id"]]][member_id] = row[_RESPONSE["seq"]], row[_RESPONSE["ts"]]
    return given


def _times_left(history: History) -> defaultdict[str, list[int]]:
    """Returns when (the ``seq``) anybody left each group of their own accord, or an administrator removed somebody."""
    left: defaultdict[str, list[int]] = defaultdict(list)
    for row in _responses(history):
        if row[_RESPONSE["api"]] == "LeaveGroup":
            left[row[_RESPONSE["group_id"]]].append(row[_RESPONSE["seq"]])
    return left


def _responses(history: History) -> Iterator[Row]:
    return (row for decided in history.decisions for row in decided.responses)


def _has_pending(history: History, group_id: str, ts_ms: int, added: set[str]) -> bool:
    """Tells whether somebody has an id to join with, hasn't done so, and may have a session still."""
    given = (
        json.loads(row[_RESPONSE["body"]])["memberId"]
        for row in _responses(history)
        if row[_RESPONSE["error_code"]] == Errors.MEMBER_ID_REQUIRED
        and row[_RESPONSE["group_id"]] == group_id
        and ts_ms - history.longest_session_ms < row[_RESPONSE["ts"]] <= ts_ms
    )
    return any(member_id not in added for member_id in given)
