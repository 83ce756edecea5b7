"""A Downtime row: time stood still while nobody could append, sessions begin anew after it."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_udf.log.rows import control_rows
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.shard import Shard
from tests.shard.edge import Output, process_rows, rows_of
from tests.shard.test_cuts import LOGS, Log, read, run_cut

START_MS = 1_700_000_000_000
GAP_MS = 600_000
SESSION_MS = 10_000


def downtime(log_ts: int, partition: int = 0) -> Request:
    body = {"fromMs": log_ts, "untilMs": log_ts + GAP_MS}
    (row,) = control_rows(partitions=1, log_ts=log_ts, api="Downtime", body=body)
    return as_request({**row, "partition": partition})


def as_request(row: dict[str, Any]) -> Request:
    return Request(*({"offset": 0, **row}[name] for name in Request._fields))


def with_downtime(log: Log, place: int) -> Log:
    """The log with a downtime before a row, and what is said then."""
    settings, rows, _ = log
    before, after = rows[:place], rows[place:]
    stopped = downtime(before[-1].log_ts, rows[0].partition)
    rows = [*before, stopped, *(row._replace(log_ts=row.log_ts + GAP_MS) for row in after)]
    return settings, rows, process_rows(Shard(rows[0].partition, settings), rows, short_way=False)


@pytest.mark.slow
@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log[0].name.split('.')[0]}-{log[1]}")
def test_however_the_log_is_cut_and_heartbeats_are_handled_the_same_is_said(log: Any) -> None:
    read_log = read(*log)
    for share in (0.3, 0.7):
        stopped = with_downtime(read_log, max(1, int(len(read_log[1]) * share)))
        for size in (3, 50):
            assert run_cut(stopped, list(range(size, len(stopped[1]), size))) == stopped[2]


class World:
    """One shard with a classic and a consumer group, of one member each."""

    def __init__(self) -> None:
        self.shard = Shard(
            0, Settings(group_initial_rebalance_delay_ms=3_000, group_consumer_session_timeout_ms=45_000)
        )
        self.count = 0

    def control(self, api: str, log_ts: int, **body: Any) -> list[Output]:
        rows = control_rows(partitions=1, log_ts=log_ts, api=api, body=body or None)
        return process_rows(self.shard, [as_request(row) for row in rows])

    def ask(self, api: str, version: int, log_ts: int, **body: Any) -> list[Output]:
        self.count += 1
        rows = rows_of(api, version, body, log_ts, f"r{self.count}", proposed_member_id=f"m{self.count}")
        return process_rows(self.shard, [as_request(row) for row in rows])

    def join(self, log_ts: int, member_id: str = "") -> list[Output]:
        protocols = [{"name": "range", "metadata": ""}]
        timeouts = {"sessionTimeoutMs": SESSION_MS, "rebalanceTimeoutMs": 60_000}
        who = {"groupId": "classic", "memberId": member_id, "protocolType": "consumer", "protocols": protocols}
        return self.ask("JoinGroup", 3, log_ts, **who, **timeouts)

    def consume(self, log_ts: int, member_id: str, epoch: int) -> list[Output]:
        who = {"groupId": "new", "memberId": member_id, "memberEpoch": epoch, "rebalanceTimeoutMs": 60_000}
        topics = {"subscribedTopicNames": ["t"], "topicPartitions": []} if epoch == 0 else {}
        return self.ask("ConsumerGroupHeartbeat", 1, log_ts, **who, **topics)

    def tick(self, log_ts: int) -> list[Output]:
        return self.control("Tick", log_ts)


def expired(outputs: list[Output]) -> list[tuple[str | None, int]]:
    """The groups of members that were silent for too long, and when that was noticed."""
    told = [output for output in outputs if output.rule == "SESSION_EXPIRED"]
    return [(output.group_id, output.ts) for output in told if output.members is None]


def test_nobody_expires_by_a_downtime_and_who_stays_silent_then_does_after_a_whole_session() -> None:
    world = World()
    world.join(START_MS)
    world.tick(START_MS + 3_000)
    world.ask(
        "SyncGroup", 0, START_MS + 3_000, groupId="classic", generationId=1, memberId="m1",
        assignments=[{"memberId": "m1", "assignment": ""}],
    )  # fmt: skip
    world.consume(START_MS + 3_000, "m", 0)
    stopped = START_MS + 9_000
    assert expired(world.tick(stopped)) == []
    until = stopped + GAP_MS
    assert expired(world.control("Downtime", stopped, fromMs=stopped, untilMs=until)) == []
    assert expired(world.tick(until)) == []
    assert expired(world.tick(until + SESSION_MS - 1)) == []
    assert [ts for group, ts in expired(world.tick(until + SESSION_MS)) if group == "classic"] == [until + SESSION_MS]
    assert expired(world.tick(until + 44_999)) == []
    assert [ts for group, ts in expired(world.tick(until + 45_000)) if group == "new"] == [until + 45_000]


def test_a_session_is_longer_by_the_time_that_clients_need_to_come_back() -> None:
    world = World()
    world.consume(START_MS, "m", 0)
    until = START_MS + GAP_MS
    world.control("Downtime", START_MS, fromMs=START_MS, untilMs=until, graceMs=20_000)
    assert expired(world.tick(until + 64_999)) == []
    assert {ts for _, ts in expired(world.tick(until + 65_000))} == {until + 65_000}


def test_sessions_of_clients_that_stayed_connected_end_when_they_would_have_but_not_before_they_can_be_heard() -> None:
    world = World()
    world.join(START_MS)
    world.tick(START_MS + 3_000)
    stopped = START_MS + 3_000
    world.ask(
        "SyncGroup", 0, stopped, groupId="classic", generationId=1, memberId="m1",
        assignments=[{"memberId": "m1", "assignment": ""}],
    )  # fmt: skip
    world.consume(stopped, "m", 0)
    until = stopped + 20_000
    world.control("Downtime", stopped, fromMs=stopped, untilMs=until, heardWithinMs=6_000)
    assert expired(world.tick(until + 5_999)) == []
    assert {group for group, _ in expired(world.tick(until + 6_000))} == {"classic"}
    assert expired(world.tick(stopped + 44_999)) == []
    assert {group for group, _ in expired(world.tick(stopped + 45_000))} == {"new"}


def test_a_join_phase_has_the_time_that_it_had_left() -> None:
    world = World()
    world.join(START_MS)
    stopped = START_MS + 1_000
    world.tick(stopped)
    until = stopped + GAP_MS
    world.control("Downtime", stopped, fromMs=stopped, untilMs=until)
    assert not [o for o in world.tick(until + 1_999) if o.api == "JoinGroup"]
    assert [o.ts for o in world.tick(until + 2_000) if o.api == "JoinGroup"] == [until + 2_000]


def test_a_session_that_ended_before_the_downtime_has_ended() -> None:
    world = World()
    world.consume(START_MS, "m", 0)
    world.tick(START_MS + 1)
    late = START_MS + 45_000
    assert [ts for _, ts in expired(world.control("Downtime", late, fromMs=late, untilMs=late + GAP_MS))] == [late]


@pytest.mark.parametrize("body", [{}, {"fromMs": 0}, {"fromMs": 0, "untilMs": -1}, {"fromMs": 0, "untilMs": "x"}])
def test_a_downtime_that_cannot_be_read_is_rejected(body: dict[str, Any]) -> None:
    (output,) = World().control("Downtime", START_MS, **body)
    assert output.kind == "rejected"
    assert "Downtime" in output.reason
