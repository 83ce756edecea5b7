"""Whose request it was goes from the log to each cause; a timer is nobody's."""

from __future__ import annotations

from typing import Any

from coordinator_udf.log.rows import control_rows
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.shard import Shard
from tests.shard.edge import process_rows, rows_of

START_MS = 1_700_000_000_000


def test_each_cause_has_the_principal_of_its_request() -> None:
    shard = Shard(0, Settings(group_initial_rebalance_delay_ms=0))
    offset = 0
    seen: list[tuple[str, str | None]] = []

    def feed(rows: list[dict[str, Any]]) -> None:
        nonlocal offset
        for row in rows:
            said = process_rows(shard, [Request(offset=offset, **row)])
            changes = [output.columns for output in said if output.kind == "transitions"]
            seen.extend((change["rule"], change["cause_principal"]) for change in changes)
            offset += 1

    def ask(ms: int, api: str, principal: str | None, **body: Any) -> None:
        who: dict[str, Any] = {"proposed_member_id": f"m{offset}", "principal": principal}
        feed(rows_of(api, 3, {"groupId": "g", **body}, START_MS + ms, f"r{offset}", **who))

    member = {"sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 10_000, "memberId": "", "protocolType": "x"}
    protocols = [{"name": "p", "metadata": "AA=="}]
    ask(0, "JoinGroup", "User:alice", **member, protocols=protocols)
    ask(1, "JoinGroup", None, **member, protocols=protocols)
    ask(2, "LeaveGroup", "User:admin", members=[{"memberId": "m0", "groupInstanceId": None}])
    feed(control_rows(partitions=1, log_ts=START_MS + 60_000, api="Tick"))
    assert {"User:alice", None, "User:admin"} == {principal for _, principal in seen}
    assert ("MEMBER_ADDED", "User:alice") in seen
    assert ("MEMBER_ADDED", None) in seen
    assert {principal for rule, principal in seen if rule == "MEMBER_LEFT"} == {"User:admin"}, "who did it, not to whom"
    assert {principal for rule, principal in seen if rule.endswith("EXPIRED")} == {None}
