"""Finds what outlasts its time: phases of rebalances, partitions that aren't given up, memberships of who has left."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

from coordinator_udf.groups.decisions import PLACES, Row
from coordinator_udf.groups.model.classic_states import ClassicGroupState
from coordinator_udf.groups.model.consumer import MemberState
from coordinator_udf.groups.records.consumer import CURRENT_ASSIGNMENT
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.plan import WorldPlan
from coordinator_udf.simulation.violation import Violation

_RESPONSE = PLACES["responses"]
_TRANSITION = PLACES["transitions"]
_COLUMNS = "ts", "group_id", "from_state", "to_state", "members"
#: What a timer ends at the latest. Those of a join phase in an empty group come to that time together, too.
_PHASES = frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE})
#: A timer of the coordinator's fires at its time.
_SLACK_MS = 1_000
#: How long it may take until the coordinator has a request with which a member leaves.
_LEAVES_MS = 5_000


def rebalance_timeouts_ms(plan: WorldPlan) -> dict[str, int]:
    """Returns the longest rebalance timeout that a member of each group has, its max.poll.interval.ms.

    None are where the coordinator goes away or pauses: then timers begin anew, or are late.
    """
    timeouts_ms: dict[str, int] = {}
    for member in plan.members if plan.is_always_served else ():
        timeout_ms = member.config().max_poll_interval_ms
        timeouts_ms[member.group_id] = max(timeout_ms, timeouts_ms.get(member.group_id, 0))
    return timeouts_ms


def who_leaves_on_close(plan: WorldPlan) -> frozenset[str]:
    """Returns the processes that leave their groups when they close, and from which every request comes in time."""
    if plan.network.loss or not plan.is_always_served:
        return frozenset()
    return frozenset(
        member.name
        for member in plan.members
        if "group.instance.id" not in member.properties and member.habit is None and member.is_always_heard
    )


def outlasted(history: History) -> Iterator[Violation]:
    """Yields what the coordinator's timers, or members that close, should have made an end of."""
    yield from _phases(history)
    yield from _unsynced(history)
    yield from _unrevoked(history)
    yield from _without_leaving(history)


def _phases(history: History) -> Iterator[Violation]:
    """Yields phases of classic groups' rebalances that go on for longer than a member may take."""
    began: dict[str, tuple[int, str]] = {}
    for row in history.transitions():
        ts_ms, group_id, from_state, to_state, members = (row[_TRANSITION[name]] for name in _COLUMNS)
        if members is None or from_state == to_state:
            continue
        if group_id in began:
            yield from _too_long(history, group_id, *began.pop(group_id), ts_ms)
        # A join phase begins anew where members are static and none of them joins again.
        is_endless = to_state == ClassicGroupState.PREPARING_REBALANCE and group_id in history.with_static_members
        if to_state in _PHASES and not is_endless:
            began[group_id] = ts_ms, to_state
    for group_id, (since_ms, state) in began.items():
        yield from _too_long(history, group_id, since_ms, state, history.end_ms)


def _too_long(history: History, group_id: str, since_ms: int, state: str, until_ms: int) -> Iterator[Violation]:
    timeout_ms = history.rebalance_timeouts_ms.get(group_id)
    if timeout_ms is not None and until_ms - since_ms > timeout_ms + _SLACK_MS:
        detail = f"the group was {state} for {until_ms - since_ms} ms, its rebalance timeout is {timeout_ms} ms"
        yield Violation(since_ms + timeout_ms, group_id, "phase too long", detail)


def _unsynced(history: History) -> Iterator[Violation]:
    """Yields generations in which somebody stays that never sends SyncGroup (KAFKA-12890)."""
    began: dict[str, tuple[int, set[str]]] = {}
    for decided in history.decisions:
        for row in decided.transitions:
            ts_ms, group_id, from_state, to_state, members = (row[_TRANSITION[name]] for name in _COLUMNS)
            if members is None:
                # Whoever comes, goes or is removed has nothing to say of the generation.
                began.get(group_id, (0, set()))[1].discard(row[_TRANSITION["cause_member_id"]])
            elif to_state not in {from_state, ClassicGroupState.STABLE}:
                since_ms, silent = began.pop(group_id, (ts_ms, set()))
                yield from _mute(history, group_id, since_ms, silent, ts_ms)
                if to_state == ClassicGroupState.COMPLETING_REBALANCE:
                    began[group_id] = ts_ms, _answered(decided.responses, group_id)
        for row in decided.responses:
            if row[_RESPONSE["api"]] == "SyncGroup":
                began.get(row[_RESPONSE["group_id"]], (0, set()))[1].discard(row[_RESPONSE["member_id"]])
    for group_id, (since_ms, silent) in began.items():
        yield from _mute(history, group_id, since_ms, silent, history.end_ms)


def _answered(responses: list[Row], group_id: str) -> set[str]:
    """Returns the members whose JoinGroup is answered with a new generation."""
    return {
        json.loads(row[_RESPONSE["body"]])["memberId"]
        for row in responses
        if (row[_RESPONSE["api"]], row[_RESPONSE["group_id"]]) == ("JoinGroup", group_id)
        and row[_RESPONSE["error_code"]] == Errors.NONE
    }


def _mute(history: History, group_id: str, since_ms: int, members: set[str], until_ms: int) -> Iterator[Violation]:
    timeout_ms = history.rebalance_timeouts_ms.get(group_id)
    if members and timeout_ms is not None and until_ms - since_ms > timeout_ms + _SLACK_MS:
        names = ", ".join(sorted(history.process_of.get(member_id, member_id) for member_id in members))
        detail = f"{names} sent no SyncGroup for {until_ms - since_ms} ms, the rebalance timeout is {timeout_ms} ms"
        yield Violation(since_ms + timeout_ms, group_id, "phase too long", detail)


def _unrevoked(history: History) -> Iterator[Violation]:
    """Yields KIP-848 members that stay though they don't give up partitions within their rebalance timeouts."""
    began: dict[tuple[str, str | None], int] = {}
    for ts_ms, group_id, _, member_id, value in history.records((CURRENT_ASSIGNMENT,)):
        since_ms = began.pop((group_id, member_id), None)
        if since_ms is not None:
            yield from _kept(history, group_id, member_id, since_ms, ts_ms)
        if value is not None and value.get("state") == MemberState.UNREVOKED_PARTITIONS:
            began[group_id, member_id] = ts_ms
    for (group_id, member_id), since_ms in began.items():
        yield from _kept(history, group_id, member_id, since_ms, history.end_ms)


def _kept(history: History, group_id: str, member_id: str | None, since_ms: int, until_ms: int) -> Iterator[Violation]:
    process = history.process_of.get(member_id or "")
    if process is None or process not in history.kip_848 or group_id not in history.rebalance_timeouts_ms:
        return
    timeout_ms = history.poll_intervals_ms[process]
    if until_ms - since_ms > timeout_ms + _SLACK_MS:
        detail = f"{process} gave nothing up for {until_ms - since_ms} ms, its rebalance timeout is {timeout_ms} ms"
        yield Violation(since_ms + timeout_ms, group_id, "phase too long", detail)


def _without_leaving(history: History) -> Iterator[Violation]:
    """Yields processes that were members when they began to close, and are removed for their silence later."""
    removed_ms: dict[str, list[int]] = defaultdict(list)
    for one in history.removals:
        removed_ms[history.process_of.get(one.member_id, "")].append(one.ts_ms)
    closes_ms: dict[str, int] = {}
    for place, event in enumerate(history.events):
        process = event.process
        if process not in history.leave_on_close or process not in removed_ms:
            continue
        if event.event == "close":
            closes_ms[process] = event.ts_ms
        elif event.event == "closed" and process in closes_ms:
            known = history.membership_at(process, closes_ms.pop(process))
            if known is None or not known.is_stable or known.number <= 0:
                continue
            # A process that ends by an exception may be started again under its name.
            later = history.events[place + 1 :]
            starts_ms = (one.ts_ms for one in later if one.process == process and one.event == "start")
            until_ms = next(starts_ms, history.end_ms)
            for ts_ms in removed_ms[process]:
                if event.ts_ms + _LEAVES_MS < ts_ms < until_ms:
                    detail = f"{process} has closed, and is a member until it is removed {ts_ms - event.ts_ms} ms later"
                    yield Violation(ts_ms, event.group_id, "didn't leave", detail)
