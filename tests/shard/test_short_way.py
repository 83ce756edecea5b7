"""Heartbeats on the short way say what they say on the long one, however rows are cut."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.batches import process_batch
from coordinator_udf.shard.shard import Shard
from coordinator_udf.shard.state_row.codec import decode, encode
from schemas.requests import request_log_arrow
from tests.nightly import some_or_many
from tests.shard.edge import Output, as_batch, in_order, process_rows

START_MS = 1_700_000_000_000
GROUPS = ("g0", "g1")
MEMBERS = ("a", "b", "c", "d")
SETTINGS = Settings(group_initial_rebalance_delay_ms=0)

#: What happens next: an API, who does it, how many milliseconds later, and what is odd about it.
Step = tuple[str, str, str, int, str]

step = st.tuples(
    st.sampled_from(["JoinGroup", "SyncGroup", "OffsetCommit", "LeaveGroup", "Tick", "Nonsense", *["Heartbeat"] * 9]),
    st.sampled_from(GROUPS),
    st.sampled_from(MEMBERS),
    st.sampled_from([0, 0, 1, 100, 3_000, 9_999, 10_000, 60_000]),
    st.sampled_from([*["none"] * 6, "stale", "instance", "body", "null", "early"]),
)


class Log:
    """Turns steps into rows that mostly make sense: the generation is one that the group may have."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.rows: list[Request] = []
        self.joins = dict.fromkeys(GROUPS, 0)

    def add(self, happens: Step, generation_id: int) -> None:
        api, group_id, name, later_ms, odd = happens
        self.now_ms += later_ms
        number = len(self.rows)
        member_id = f"{group_id}-{name}"
        generation_id -= odd == "stale"
        instance = f"i-{name}" if odd == "instance" else None
        has_body = api != "Heartbeat" or odd == "body"
        body = json.dumps(self._body(api, group_id, member_id, generation_id)) if has_body else None
        self.rows.append(
            Request(
                0, number, self.now_ms - (5_000 if odd == "early" else 0), f"r{number}", api, 3, group_id,
                None if odd == "null" else member_id, generation_id, instance, "client", "/host",
                parts=1, body=body,
            )
        )  # fmt: skip

    def _body(self, api: str, group_id: str, member_id: str, generation_id: int) -> dict[str, Any]:
        named = {"groupId": group_id, "memberId": member_id, "generationId": generation_id}
        if api == "JoinGroup":
            protocols = [{"name": "range", "metadata": ""}]
            timeouts = {"sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 20_000}
            return {**named, **timeouts, "protocolType": "p", "protocols": protocols}
        if api == "SyncGroup":
            return {**named, "assignments": [{"memberId": member_id, "assignment": "AAE="}]}
        if api == "OffsetCommit":
            partitions = [{"partitionIndex": 0, "committedOffset": 7}]
            topics = [{"name": "t", "partitions": partitions}]
            return {**named, "generationIdOrMemberEpoch": generation_id, "topics": topics}
        if api == "LeaveGroup":
            return {**named, "members": [{"memberId": member_id}]}
        return named


def made_log(steps: list[tuple[Step, int]]) -> list[Request]:
    """Groups that are joined one member after the other, then what the steps say."""
    log = Log()
    for group_id in GROUPS:
        for name in MEMBERS[:3]:
            log.add(("JoinGroup", group_id, name, 0, "none"), 0)
            first = log.rows[-1]
            member_id = first.member_id
            body = json.dumps({**json.loads(first.body or "{}"), "memberId": ""})
            log.rows[-1] = first._replace(member_id="", proposed_member_id=member_id, body=body)
        for name in MEMBERS[:3]:
            log.add(("JoinGroup", group_id, name, 0, "none"), 0)
        for generation_id in (1, 2, 3):
            for name in MEMBERS[:3]:
                log.add(("SyncGroup", group_id, name, 0, "none"), generation_id)
    for happens, generation_id in steps:
        log.add(happens, generation_id)
    return log.rows


@pytest.mark.slow
@settings(max_examples=some_or_many(50, 1_000))
@given(
    steps=st.lists(st.tuples(step, st.sampled_from([1, 2, 2, 2, 3])), max_size=60),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    kept=st.booleans(),
)
def test_every_way_says_the_same(steps: list[tuple[Step, int]], cuts: list[int], kept: bool) -> None:
    # So that two heartbeats are looked at together.
    with patch("coordinator_udf.shard.batch_rows.BULK_ROWS", 2):
        say_the_same(steps, cuts, kept)


def say_the_same(steps: list[tuple[Step, int]], cuts: list[int], kept: bool) -> None:
    rows = made_log(steps)
    expected = process_rows(Shard(0, SETTINGS), rows, short_way=False)
    shards = {way: Shard(0, SETTINGS) for way in ("short", "long", "row by row")}
    said: dict[str, list[Output]] = {way: [] for way in shards}
    start = 0
    for number in range(len(rows)):
        if start >= len(rows):
            break
        part = rows[start : start + cuts[number % len(cuts)]]
        start += len(part)
        said["short"] += process_rows(shards["short"], part)
        long = process_batch(shards["long"], "live", as_batch(part), short_way=False)
        assert long.heartbeats is None
        said["long"] += in_order(long.outputs())
        for row in part:
            said["row by row"] += process_rows(shards["row by row"], [row])
        if not kept:
            shards = {way: decode(0, SETTINGS, encode(shard)) for way, shard in shards.items()}
    for way, outputs in said.items():
        assert outputs == expected, way


def test_stable_groups_take_the_short_way() -> None:
    heartbeats = [
        (("Heartbeat", group_id, name, 10, "none"), 1) for _ in range(5) for group_id in GROUPS for name in "abc"
    ]
    rows = made_log([(("Tick", "g0", "a", 0, "none"), 0)])
    shard = Shard(0, SETTINGS)
    process_batch(shard, "live", as_batch(rows))
    generation_id = {group.group_id: group.generation_id for group in shard.store.groups.values()}
    assert set(generation_id) == set(GROUPS)
    log = Log()
    for (api, group_id, name, later_ms, odd), _ in heartbeats:
        log.add((api, group_id, name, later_ms, odd), generation_id[group_id])
    outputs = process_batch(shard, "live", as_batch(log.rows))
    assert outputs.heartbeats is not None
    assert (outputs.heartbeats.rows, outputs.decisions) == (len(heartbeats), [])
    assert set(outputs.outputs().responses.column("error_code").to_pylist()) == {0}


def test_an_unreadable_row_is_rejected() -> None:
    rows = made_log([(("Heartbeat", "g0", "a", 10, "none"), 1)])
    broken = as_batch(rows).set_column(3, request_log_arrow().field("log_ts"), pa.array([None] * len(rows), pa.int64()))
    outputs = process_batch(Shard(0, SETTINGS), "live", broken).outputs()
    assert len(outputs.rejected) == len(outputs.responses) == len(rows)
    assert [len(outputs.records), len(outputs.transitions)] == [0, 0]
