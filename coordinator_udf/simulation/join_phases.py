"""Finds join phases of classic groups that go on until their time is over though all members have joined."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

from coordinator_udf.groups.decisions import PLACES
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


def _has_pending(history: History, group_id: str, ts_ms: int, added: set[str]) -> bool:
    """Tells whether somebody has an id to join with, hasn't done so, and may have a session still."""
    given = (
        json.loads(row[_RESPONSE["body"]])["memberId"]
        for decided in history.decisions
        for row in decided.responses
        if row[_RESPONSE["error_code"]] == Errors.MEMBER_ID_REQUIRED
        and row[_RESPONSE["group_id"]] == group_id
        and ts_ms - history.longest_session_ms < row[_RESPONSE["ts"]] <= ts_ms
    )
    return any(member_id not in added for member_id in given)
