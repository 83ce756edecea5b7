"""The moments that a broker's log leaves open: a busy shard, and a timer that fired late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.replay.inputs.broker_log.availability import availability
from coordinator_udf.replay.inputs.broker_log.facts import findings, likely_partitions
from coordinator_udf.replay.inputs.broker_log.hangs import hangs_of
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.moments import RequestMoment
from coordinator_udf.replay.inputs.broker_log.order import set_row_times
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.run_and_compare import run_and_compare

CRASH = Path(__file__).parents[1] / "data" / "crash.log.gz"
LATE_MS = 400
#: Of members of the consumer protocol.
SESSION_MS = 45_000


def join(number: int, arrived_ms: int, answered_ms: int, error: int) -> Entry:
    return Entry(
        number=number, api="JoinGroup", api_version=9, request_id=str(number), connection=str(number), client_id="c",
        client_host=None, request={}, response={"errorCode": error}, written_us=answered_ms * 1000, exact_us=1000,
        total_us=(answered_ms - arrived_ms) * 1000, queue_us=0, local_us=0, remote_us=(answered_ms - arrived_ms) * 1000,
    )  # fmt: skip


def times(entries: list[Entry]) -> list[int]:
    rows: list[dict[str, Any]] = [{"request_id": entry.request_id, "partition": 0, "log_ts": 0} for entry in entries]
    set_row_times(rows, {entry.request_id: entry for entry in entries})
    return [row["log_ts"] for row in rows]


def test_a_request_that_finds_its_shard_busy_is_handled_when_that_is_done() -> None:
    assert times([join(1, 0, 190, 79), join(2, 100, 6000, 0)]) == [190, 190]


def test_a_shard_is_not_busy_with_what_comes_later_or_waits_for_others() -> None:
    assert times([join(1, 0, 5000, 0), join(2, 100, 6000, 0), join(3, 100, 300, 79)]) == [0, 100, 300]


def test_a_join_phase_ends_when_its_members_are_answered() -> None:
    """The initial delay's timer fires late: the rebalance is that much longer, and all else as it was."""
    usual = read_source(CRASH, "crash", ReplayOptions())
    outputs, _ = run_and_compare(usual)
    late = read_source(CRASH, "crash", ReplayOptions())
    first = min(row["ts"] for row in ends(outputs.transitions.to_pylist()))
    for place, answer in enumerate(late.recording.answers):
        if answer.api == "JoinGroup" and answer.ts is not None and abs(answer.ts - first) <= 50:
            late.recording.answers[place] = type(answer)(
                answer.request_id, answer.api, answer.api_version, answer.body, answer.ts + LATE_MS
            )
    changed, _ = run_and_compare(late)
    before, after = outputs.transitions.to_pylist(), changed.transitions.to_pylist()
    moved = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert moved
    assert {a["rule"] for a, _ in moved} == {"JOIN_EXPIRED"}
    # Not behind the leader's assignment, which the same log tells.
    assert all(a["ts"] < b["ts"] <= a["ts"] + LATE_MS for a, b in moved)


def test_a_member_that_is_put_out_and_so_ends_a_join_phase_goes_when_the_others_are_answered() -> None:
    usual = read_source(CRASH, "crash", ReplayOptions())
    before = run_and_compare(usual)[0].transitions.to_pylist()
    expired = next(row for row in before if row["rule"] == "SESSION_EXPIRED" and row["to_state"] == "PreparingRebalance"
                   and row["from_state"] == "PreparingRebalance")  # fmt: skip
    late = read_source(CRASH, "crash", ReplayOptions())
    for place, answer in enumerate(late.recording.answers):
        if answer.api == "JoinGroup" and answer.ts is not None and abs(answer.ts - expired["ts"]) <= 50:
            late.recording.answers[place] = type(answer)(
                answer.request_id, answer.api, answer.api_version, answer.body, answer.ts + 30
            )
    after = run_and_compare(late)[0].transitions.to_pylist()
    moved = {a["rule"] for a, b in zip(before, after, strict=True) if b["ts"] > a["ts"]}
    assert moved == {"SESSION_EXPIRED", "ALL_JOINED"}


def ends(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["rule"] == "JOIN_EXPIRED"]


def test_the_times_of_a_whole_log_go_on() -> None:
    source = read_source(CRASH, "crash", ReplayOptions())
    latest: dict[int, int] = {}
    for row in source.rows:
        assert row["log_ts"] >= latest.get(row["partition"], 0)
        latest[row["partition"]] = row["log_ts"]


def asked(number: int, group: str, at_ms: int, error: int) -> Entry:
    entry = join(number, at_ms, at_ms + 2, error)
    return Entry(**{**{name: getattr(entry, name) for name in entry.__struct_fields__}, "log_ts": at_ms,
                    "api": "Heartbeat", "request": {"groupId": group, "memberId": "m"}})  # fmt: skip


def test_a_shard_was_loaded_as_soon_as_no_answer_says_that_it_was_not() -> None:
    # Loading (14), then a member that the coordinator doesn't know (25), which it can only say once it has loaded.
    entries = [asked(1, "a", 1_000, 25), asked(2, "a", 9_000, 14), asked(3, "a", 9_200, 25)]
    found = availability([RequestMoment.of(entry) for entry in entries], 1, SESSION_MS)
    assert [(control.api, control.log_ts) for control in found.controls[3, 0]] == [("Failover", 9_003)]


def test_a_shard_that_nobody_asked_for_long_was_loaded_soon_if_anything_says_so() -> None:
    def loaded_ms(error: int, *between: Entry) -> int:
        entries = [asked(1, "a", 1_000, 25), asked(2, "a", 9_000, error), *between, asked(9, "a", 39_000, 25)]
        found = availability([RequestMoment.of(entry) for entry in entries], 2, SESSION_MS)
        return found.controls[9, partition_for("a", 2)][-1].log_ts

    other = next(name for name in "bcdefgh" if partition_for(name, 2) != partition_for("a", 2))
    assert loaded_ms(14) == 9_003
    # Not this broker's (16): it may have become so when it was asked again, unless others were loaded meanwhile.
    assert loaded_ms(16) == 39_000
    assert loaded_ms(16, asked(3, other, 9_010, 16), asked(4, other, 12_000, 25)) == 9_003


@pytest.mark.parametrize(("broker", "error", "is_loaded"), [("10.1", 0, True), ("10.2", 0, False), ("10.1", 14, False)])
def test_a_shard_is_loaded_when_its_broker_lists_groups(broker: str, error: int, is_loaded: bool) -> None:
    lists = msgspec.structs.replace(
        asked(3, "g", 6_000, error), api="ListGroups", request={}, connection=f"{broker}-10.9:1-0"
    )
    loading = msgspec.structs.replace(asked(2, "g", 5_000, 14), connection="10.1-10.9:2-0")
    log = [asked(1, "g", 4_000, 25), loading, lists]
    found = availability([RequestMoment.of(entry) for entry in log], 2, SESSION_MS)
    own = partition_for("g", 2)
    by_request = {number: [(row.api, row.log_ts) for row in rows] for (number, _), rows in found.controls.items()}
    assert {shard for _, shard in found.controls} == {own}
    assert by_request.get(3) == ([("Failover", 5_003)] if is_loaded else None)


def test_a_shard_that_was_lost_before_a_silence_is_not_loaded_at_its_end() -> None:
    """Which a member of another shard tells of that can join again after more than its session."""
    joined = [
        msgspec.structs.replace(
            join(number, at_ms, at_ms + 1, 0), request={"groupId": "h", "sessionTimeoutMs": 10_000},
            response={"errorCode": 0, "leader": "n-1", "memberId": "n-1"},
        )
        for number, at_ms in ((2, 4_500), (4, 60_000))
    ]  # fmt: skip
    log = [asked(1, "g", 4_000, 25), joined[0], asked(3, "g", 5_000, 16), joined[1], asked(5, "g", 60_100, 16)]
    found = availability([RequestMoment.of(entry) for entry in [*log, asked(6, "g", 60_200, 25)]], 2, SESSION_MS)
    own = partition_for("g", 2)
    by_request = {number: [row.api for row in rows] for (number, shard), rows in found.controls.items() if shard == own}
    assert by_request == {3: ["Unload"], 6: ["Failover"]}


def test_a_shard_is_lost_that_sends_away_who_waits_and_loaded_with_the_others() -> None:
    waits = msgspec.structs.replace(join(1, 1_000, 5_000, 16), request={"groupId": "g", "memberId": "m"})
    lists = msgspec.structs.replace(asked(9, "g", 20_000, 0), api="ListGroups", request={})
    other = next(name for name in "abcdef" if partition_for(name, 2) != partition_for("g", 2))
    lost = [asked(number, other, 5_000 + 100 * number, 16) for number in (2, 3)]
    log = [waits, asked(8, other, 4_000, 25), *lost, asked(4, other, 9_000, 25), lists]
    found = availability([RequestMoment.of(entry) for entry in log], 2, SESSION_MS)
    own = found.controls[9, partition_for("g", 2)]
    (loaded_ms,) = [row.log_ts for row in found.controls[4, partition_for(other, 2)] if row.api == "Failover"]
    assert [(row.api, row.log_ts) for row in own] == [("Unload", 5_000), ("Failover", loaded_ms)]
    assert found.losses[partition_for("g", 2)] == [5_000]
    # Whose shard is found lost anyhow isn't lost twice.
    of_g = [asked(7, "g", 900, 25), waits, asked(5, "g", 5_300, 16), asked(6, "g", 5_400, 16), lists]
    found = availability([RequestMoment.of(entry) for entry in of_g], 2, SESSION_MS)
    assert found.losses[partition_for("g", 2)] == [1_000]


def by_request(log: list[Entry], partitions: int = 1) -> dict[int, list[tuple[str, int]]]:
    found = availability([RequestMoment.of(entry) for entry in log], partitions, SESSION_MS)
    return {number: [(row.api, row.log_ts) for row in rows] for (number, _), rows in found.controls.items()}


def test_one_answer_that_a_shard_is_lost_counts_beside_a_time_without_any() -> None:
    lost = [asked(2, "g", 8_000, 16), asked(3, "g", 8_100, 25)]
    assert by_request([asked(1, "g", 7_900, 25), *lost]) == {}
    # The broker said so while it stopped, or after it had hung for so long that it was missed.
    stops = by_request([asked(1, "g", 7_900, 25), lost[0], asked(3, "g", 13_000, 25)])
    assert [(number, [api for api, _ in rows]) for number, rows in stops.items()] == [
        (2, ["Unload"]),
        (3, ["Failover"]),
    ]
    hung = by_request([asked(4, "g", 1_000, 25), asked(1, "g", 7_900, 25), *lost])
    assert hung == {2: [("Unload", 8_000)], 3: [("Failover", 8_003)]}


def test_a_shard_that_answers_a_heartbeat_after_a_silence_was_lost_after_it() -> None:
    log = [asked(1, "g", 1_000, 25), asked(2, "g", 9_000, 0), asked(3, "g", 9_100, 16), asked(4, "g", 9_200, 16)]
    assert by_request(log) == {3: [("Unload", 9_100)]}


def member(number: int, at_ms: int, **told: Any) -> Entry:
    """What a member of the group g asks, whose session is over after ten seconds; each on a connection of its own."""
    answer = {"errorCode": 0, **told.pop("response", {})}
    return msgspec.structs.replace(asked(number, "g", at_ms, 0), response=answer, connection=str(number), **told)


JOINED = {
    "classic": member(
        1, 1_000, api="JoinGroup", request={"groupId": "g", "sessionTimeoutMs": 10_000},
        response={"leader": "m", "memberId": "m"},
    ),
    "consumer": member(
        1, 1_000, api="ConsumerGroupHeartbeat", request={"groupId": "g", "memberEpoch": 0, "memberId": "m"},
        response={"memberId": "m", "memberEpoch": 1},
    ),
}  # fmt: skip
COMMITTED = {"topics": [{"partitions": [{"errorCode": 0}]}]}
REFUSED = {"topics": [{"partitions": [{"errorCode": 25}]}]}
DESCRIBED = {"groups": [{"groupId": "g", "errorCode": 0, "groupState": "Stable", "members": [{"memberId": "m"}]}]}
EMPTY = {"groups": [{"groupId": "g", "errorCode": 0, "groupState": "Empty", "members": []}]}


@pytest.mark.parametrize(
    ("protocol", "api", "response", "restarted"),
    [
        ("classic", "OffsetCommit", COMMITTED, True),
        ("classic", "OffsetCommit", REFUSED, False),
        ("classic", "Heartbeat", {}, True),
        ("classic", "DescribeGroups", DESCRIBED, True),
        ("classic", "DescribeGroups", EMPTY, False),
        ("classic", "ListGroups", DESCRIBED, True),
        ("classic", "ListGroups", EMPTY, False),
        # Of the consumer protocol the session is the broker's: 45 s.
        ("consumer", "OffsetCommit", COMMITTED, False),
    ],
)
def test_a_broker_restarted_that_still_has_a_member_whose_session_was_over(
    protocol: str, api: str, response: dict[str, Any], restarted: bool
) -> None:
    after = member(2, 30_000, api=api, request={"groupId": "g", "memberId": "m"}, response=response)
    found = by_request([JOINED[protocol], after])
    assert [api for api, _ in found.get(2, ())][:1] == (["Unload"] if restarted else [])
    later = msgspec.structs.replace(after, number=3, log_ts=60_000, written_us=60_002_000)
    assert bool(by_request([JOINED[protocol], later])) == (restarted or protocol == "consumer")


def test_a_group_is_listed_by_the_broker_whose_shard_has_it() -> None:
    lists = msgspec.structs.replace(asked(3, "g", 6_000, 0), api="ListGroups", request={}, response=EMPTY)
    lost = [asked(2, "g", 5_000, 16), asked(4, "g", 5_100, 16)]
    assert by_request([asked(1, "g", 4_000, 25), *lost, lists], 2)[3][0][0] == "Failover"


def test_a_broker_hung_where_nobody_was_ever_as_quiet() -> None:
    def beats(connection: str, *times_ms: int) -> list[Entry]:
        return [msgspec.structs.replace(asked(ms, "g", ms, 0), connection=connection) for ms in times_ms]

    def hangs(*of_connections: list[Entry]) -> list[tuple[int, int]]:
        found = hangs_of(sorted((each for own in of_connections for each in own), key=lambda each: each.arrived_us))
        return [(silence.start_us // 1_000, silence.end_us // 1_000) for silence in found]

    first, second = beats("a", 0, 700, 1_400, 9_000, 9_700, 10_400), beats("b", 100, 800, 1_500, 9_100, 9_800)
    assert hangs(first, second) == [(1_502, 9_000)]
    # One client alone may have hung itself; and who beats each eight seconds isn't missed.
    assert hangs(first) == []
    assert hangs(beats("a", 0, 8_000, 16_000, 24_000), beats("b", 100, 8_100, 16_100, 24_100)) == []
    # A request that was to be answered meanwhile tells as much as a second client.
    waits = join(1, 1_450, 9_050, 0)
    assert hangs(first, [waits]) == [(1_450, 9_000)]
    assert hangs([*beats("a", 0, 8_000, 16_000, 24_000)], [waits]) == []


def test_a_shard_is_lost_that_sends_away_who_waits_though_nobody_asks_any_more() -> None:
    waits = msgspec.structs.replace(join(1, 1_000, 5_000, 16), request={"groupId": "g", "memberId": "m"})
    found = availability([RequestMoment.of(waits)], 2, SESSION_MS)
    own = partition_for("g", 2)
    assert (found.lost_at_end, dict(found.losses), found.controls) == ({own: 5_000}, {own: [5_000]}, {})


def test_shards_share_a_number_only_if_that_contradicts_nothing() -> None:
    # A broker lost both groups at once; one was loaded when the other was not yet.
    entries = [
        asked(number, group, at_ms, error)
        for number, (group, at_ms, error) in enumerate(
            [("a", 0, 25), ("b", 1, 25), ("a", 5_000, 14), ("b", 5_001, 14), ("a", 5_100, 25), ("b", 5_200, 14)]
        )
    ]
    count = likely_partitions(each for entry in entries for each in findings(entry))
    assert partition_for("a", count) != partition_for("b", count)


def test_who_ended_a_join_phase_asked_no_later_than_the_others_were_answered() -> None:
    """The last to join is written late, and by itself could have been handled behind the answers to the others."""
    source = read_source(CRASH, "crash", ReplayOptions())
    outputs, _ = run_and_compare(source)
    last = next(row for row in outputs.transitions.to_pylist() if row["rule"] == "ALL_JOINED")
    waiting = [row for row in source.rows if row["group_id"] == last["group_id"] and row["log_ts"] < last["ts"]]
    early = read_source(CRASH, "crash", ReplayOptions())
    for place, answer in enumerate(early.recording.answers):
        if answer.api == "JoinGroup" and answer.ts is not None and abs(answer.ts - last["ts"]) <= 50:
            early.recording.answers[place] = type(answer)(
                answer.request_id, answer.api, answer.api_version, answer.body, last["ts"] - 2
            )
    changed, _ = run_and_compare(early)
    ended = next(row for row in changed.transitions.to_pylist() if row["rule"] == "ALL_JOINED")
    assert ended["ts"] == last["ts"] - 2
    asked = {row["request_id"]: row["log_ts"] for row in early.rows}
    assert asked[last["cause_request_id"]] == ended["ts"]
    assert all(asked[row["request_id"]] <= ended["ts"] for row in waiting if row["request_id"])
