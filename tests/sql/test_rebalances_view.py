"""The view `rebalances`: one row from each trigger to its end, with what it took and who caused it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.sql.conftest import Ask

pytestmark = pytest.mark.spark

PREPARING, COMPLETING, STABLE, EMPTY, DEAD = "PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead"


def history(
    *steps: tuple[int, str, str, int, list[str]] | tuple[int, str, str, int, list[str], dict[str, Any]],
) -> list[Any]:
    """Transitions from (ts, state, rule, generation, members, further columns)."""
    return [
        {
            "seq": seq,
            "ts": step[0],
            "group_id": "g",
            "to_state": step[1],
            "rule": step[2],
            "generation": step[3],
            "members": step[4],
            **(step[5] if len(step) > 5 else {}),
        }
        for seq, step in enumerate(steps)
    ]


JOINED_LAST = {"cause_api": "JoinGroup", "cause_member_id": "b", "cause_client_id": "slow"}
EXPIRED = {
    "reason": "removing member a on session expiration",
    "cause_member_id": "a",
    "cause_client_id": "app-1",
    "cause_client_host": "/10.0.0.9",
    "cause_timer": "session",
}

GROWTH_AND_LOSS = history(
    (1_000, EMPTY, "CREATED", 0, []),
    (1_000, PREPARING, "MEMBER_ADDED", 0, ["a"], {"cause_api": "JoinGroup", "cause_client_reason": "first"}),
    (4_000, COMPLETING, "JOIN_EXPIRED", 1, ["a", "b"]),
    (4_050, STABLE, "LEADER_SYNCED", 1, ["a", "b"]),
    (9_000, PREPARING, "SESSION_EXPIRED", 1, ["b"], EXPIRED),
    (9_700, COMPLETING, "ALL_JOINED", 2, ["b"], JOINED_LAST),
    (9_720, STABLE, "LEADER_SYNCED", 2, ["b"]),
)


def test_a_row_tells_all_about_a_rebalance(ask: Callable[..., Ask]) -> None:
    rows = ask(group_transitions=GROWTH_AND_LOSS)("SELECT * FROM rebalances ORDER BY started")
    assert [row["generation"] for row in rows] == [1, 2]
    assert rows[1] == {
        "source": "live",
        "group_id": "g",
        "generation": 2,
        "outcome": "Stable",
        "started": datetime(1970, 1, 1, 0, 0, 9),
        "joined": datetime(1970, 1, 1, 0, 0, 9, 700_000),
        "stable": datetime(1970, 1, 1, 0, 0, 9, 720_000),
        "ended": datetime(1970, 1, 1, 0, 0, 9, 720_000),
        "duration_ms": 720,
        "waiting_for_joins_ms": 700,
        "waiting_for_sync_ms": 20,
        "trigger": "SESSION_EXPIRED",
        "reason": "removing member a on session expiration",
        "trigger_timer": "session",
        "trigger_api": None,
        "trigger_member_id": "a",
        "trigger_client_id": "app-1",
        "trigger_client_host": "/10.0.0.9",
        "trigger_principal": None,
        "client_reason": None,
        "trigger_request_id": None,
        "join_ended_by": "ALL_JOINED",
        "last_to_join_member_id": "b",
        "last_to_join_client_id": "slow",
        "protocol": None,
        "leader": None,
        "members_before": ["a", "b"],
        "members_after": ["b"],
        "members_joined": [],
        "members_left": ["a"],
        "kind": "classic",
        "target_computed": None,
        "assignor_ms": None,
        "number": 2,
        "member_count": 1,
        "computed_by": None,
        "assignment_error": None,
        "assignment_refusals": None,
        "leader_error": None,
        "resyncs": 0,
        # Requests are what tells it from; there are none.
        "reliable_from": None,
        "diverged": 0,
    }
    first = rows[0]
    assert (first["members_before"], first["members_joined"], first["client_reason"]) == ([], ["a", "b"], "first")
    assert (first["waiting_for_joins_ms"], first["waiting_for_sync_ms"]) == (3_000, 50)
    assert (first["join_ended_by"], first["last_to_join_member_id"]) == ("JOIN_EXPIRED", None)


ENDS: dict[str, tuple[list[Any], list[tuple[int | None, str, int | None, int | None, int | None]]]] = {
    "another rebalance began before the sync": (
        history(
            (0, PREPARING, "MEMBER_ADDED", 0, ["a"]),
            (100, COMPLETING, "ALL_JOINED", 1, ["a"]),
            (150, PREPARING, "MEMBER_ADDED", 1, ["a", "b"]),
            (400, COMPLETING, "ALL_JOINED", 2, ["a", "b"]),
            (410, STABLE, "LEADER_SYNCED", 2, ["a", "b"]),
        ),
        [(1, "Interrupted", 150, 100, 50), (2, "Stable", 260, 250, 10)],
    ),
    "nobody was left": (
        history((0, PREPARING, "MEMBER_LEFT", 4, []), (30, EMPTY, "EMPTIED", 5, []), (900, DEAD, "DELETED", 5, [])),
        [(5, "Empty", 30, 30, None)],
    ),
    "the shard went away": (
        history((0, PREPARING, "MEMBER_ADDED", 4, ["a"]), (30, DEAD, "UNLOADED", 4, ["a"])),
        [(4, "Lost", 30, 30, None)],
    ),
    "it waits for joins": (
        history((0, PREPARING, "MEMBER_ADDED", 4, ["a"])),
        [(None, "UnderWay", None, None, None)],
    ),
    "it waits for the sync": (
        history((0, PREPARING, "MEMBER_ADDED", 4, ["a"]), (80, COMPLETING, "ALL_JOINED", 5, ["a"])),
        [(5, "UnderWay", None, 80, None)],
    ),
    "there was none": (history((0, EMPTY, "CREATED", 0, [])), []),
}


def test_every_end_of_a_rebalance(ask: Callable[..., Ask]) -> None:
    query = ask(group_transitions=[{**row, "source": case} for case, (rows, _) in ENDS.items() for row in rows])
    found: dict[str, list[tuple[Any, ...]]] = {case: [] for case in ENDS}
    for row in query("SELECT * FROM rebalances ORDER BY started"):
        found[row["source"]].append(
            (
                row["generation"],
                row["outcome"],
                row["duration_ms"],
                row["waiting_for_joins_ms"],
                row["waiting_for_sync_ms"],
            )
        )
    assert found == {case: expected for case, (_, expected) in ENDS.items()}


def test_members_of_a_loaded_group_are_those_before_its_next_rebalance(ask: Callable[..., Ask]) -> None:
    rows = ask(
        group_transitions=history(
            (0, STABLE, "LOADED", 7, ["a", "b"]),
            (10, PREPARING, "MEMBER_ADDED", 7, ["a", "b", "c"]),
            (20, COMPLETING, "ALL_JOINED", 8, ["a", "c"]),
        )
    )("SELECT members_before, members_joined, members_left FROM rebalances")
    assert rows == [{"members_before": ["a", "b"], "members_joined": ["c"], "members_left": ["b"]}]


def test_the_leaders_error_and_its_resyncs_are_told(ask: Callable[..., Ask]) -> None:
    failed = "Leader a can't compute an assignment: INCONSISTENT_GROUP_PROTOCOL; no strategy in common"
    query = ask(
        group_transitions=history(
            (0, PREPARING, "MEMBER_ADDED", 0, ["a"]),
            (100, COMPLETING, "ALL_JOINED", 1, ["a", "b"]),
            (150, COMPLETING, "LEADER_SYNC_FAILED", 1, ["a", "b"], {"reason": failed}),
            (400, PREPARING, "LEADER_REJOINED", 1, ["a", "b"]),
            (500, COMPLETING, "ALL_JOINED", 2, ["a", "b"]),
            (510, STABLE, "LEADER_SYNCED", 2, ["a", "b"]),
            (9_000, STABLE, "LEADER_RESYNCED", 2, ["a", "b"], {"reason": "told by heartbeats"}),
            (9_800, STABLE, "RESYNC_COMPLETED", 2, ["a", "b"], {"cause_member_id": "b"}),
            (20_000, STABLE, "LEADER_RESYNCED", 2, ["a", "b"]),
            (20_100, DEAD, "UNLOADED", 2, ["a", "b"]),
            (20_100, STABLE, "LOADED", 2, ["a", "b"]),
            (20_700, PREPARING, "RESYNC_ABORTED", 2, ["a", "b"]),
            (20_900, COMPLETING, "ALL_JOINED", 3, ["a", "b"]),
            (20_910, STABLE, "LEADER_SYNCED", 3, ["a", "b"]),
            (30_000, STABLE, "LEADER_RESYNCED", 3, ["a", "b"]),
        )
    )
    told = "SELECT outcome, leader_error, resyncs, duration_ms FROM rebalances ORDER BY number"
    assert [tuple(row.values()) for row in query(told)] == [
        ("Interrupted", failed, 0, 400),
        ("Stable", None, 2, 110),
        ("Stable", None, 1, 210),
    ]
    told = (
        "SELECT generation, outcome, duration_ms, ended_by, last_member_id, member_count FROM resyncs ORDER BY started"
    )
    assert [tuple(row.values()) for row in query(told)] == [
        (2, "Completed", 800, "RESYNC_COMPLETED", "b", 2),
        (2, "Aborted", 700, "RESYNC_ABORTED", None, 2),
        (3, "UnderWay", None, None, None, 2),
    ]
