"""Poison and some thousand mutated rows through the stream: it goes on, and nothing that was asked vanishes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.protocol.errors import error_codes
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.batches import ShardOutputs
from coordinator_udf.shard.shard import Shard
from coordinator_udf.streaming import shard_function
from coordinator_udf.streaming.recovery import next_seqs
from schemas.requests import CONTROL_APIS
from tests.protocol.sample_requests import apis_and_versions, sample_request
from tests.protocol.test_failed_answer import places_of_errors, says_it_on_top
from tests.shard.edge import rows_of
from tests.spark.conftest import Run, Scenario, read_tables

pytestmark = pytest.mark.spark

TEXTS = ["", "\x00", "é😀", "a" * 5_000, "null", "{", "[]", '{"groupId":7}', '{"members":[{}]}', "-1", None]
NUMBERS = [-(2**31), -1, 0, 1, 99, 2**31 - 1, None]
FIELDS = ["api", "group_id", "member_id", "group_instance_id", "client_id", "client_host", "proposed_member_id", "body"]


def mutated(row: dict[str, Any], chance: random.Random, number: int) -> dict[str, Any]:
    row = {**row, "request_id": f"mutant-{number}"}
    for _ in range(chance.randrange(1, 4)):
        what = chance.randrange(4)
        if what == 0:
            row[chance.choice(FIELDS)] = chance.choice(TEXTS)
        elif what == 1:
            row[chance.choice(["api_version", "generation_or_epoch", "parts"])] = chance.choice(NUMBERS)
        elif what == 2 and row["body"]:
            place = chance.randrange(len(row["body"]))
            row["body"] = row["body"][:place] + chance.choice(['"', "}", "1", ""]) + row["body"][place + 1 :]
        else:
            row["log_ts"] = chance.choice([-5, 0, row["log_ts"]])
    return row


def test_mutated_rows_stop_nothing_and_do_not_vanish(tmp_path: Path, sample: Scenario, run: Run) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    log = EmbeddedLog.create(tmp_path / "log", sample.partitions, clock_skew_max_ms=None)
    requests = [row for row in sample.rows if row["api"] not in CONTROL_APIS]
    mutants = [mutated(chance.choice(requests), chance, number) for number in range(3_000)]
    for start in range(0, len(mutants), 500):
        log.append(mutants[start : start + 500] + requests[start // 10 : start // 10 + 50])
    run(Settings(), max_rows=1_200)
    tables = read_tables(tmp_path / "tables")
    answered = set(tables["group_responses"].column("request_id").to_pylist())
    rejected = set(tables["rejected_requests"].column("request_id").to_pylist())
    lost = {row["request_id"]: row for row in mutants if row["request_id"] not in answered | rejected}
    # A join or a sync waits for others, or is asked again by its member, and then is never answered.
    assert {row["api"] for row in lost.values()} <= {"JoinGroup", "SyncGroup", "Tick", None}, list(lost.values())[:3]
    assert len(answered & {row["request_id"] for row in mutants}) > 1_000


def test_a_handler_that_raises_on_a_worker_is_answered_undone_and_told_with_its_traceback(
    tmp_path: Path, sample: Scenario, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(shard: Shard, source: str, batch: pa.RecordBatch) -> ShardOutputs:
        # A function of a function travels to the worker with its code, and finds the worker's modules there.
        from coordinator_udf.shard.batches import process_batch

        handlers = shard.handlers
        leave = handlers["LeaveGroup"]

        def raising(*given: Any) -> None:
            leave(*given)
            raise RuntimeError("out of cheese")

        shard.handlers = {**handlers, "LeaveGroup": raising}
        try:
            return process_batch(shard, source, batch)
        finally:
            shard.handlers = handlers

    monkeypatch.setattr(shard_function, "process_batch", poisoned)
    sample.make_log(tmp_path / "log", [50]).close()
    run(sample.settings, max_rows=200)
    left = sorted(row["request_id"] for row in sample.rows if row["api"] == "LeaveGroup")
    tables = read_tables(tmp_path / "tables")
    rejected = sorted(tables["rejected_requests"].to_pylist(), key=lambda row: str(row["request_id"]))
    assert [row["request_id"] for row in rejected] == left
    assert {row["reason"] for row in rejected} == {"out of cheese"}
    assert all("in raising" in row["traceback"] for row in rejected)
    answers = {row["request_id"]: row["error_name"] for row in tables["group_responses"].to_pylist()}
    assert [answers[request_id] for request_id in left] == ["UNKNOWN_SERVER_ERROR"] * len(left)
    rules = [row["rule"] for row in tables["group_transitions"].to_pylist()]
    assert "MEMBER_LEFT" not in rules, "what the handler did before it raised is undone"
    assert "MEMBER_LEFT" in sample.expected["group_transitions"].column("rule").to_pylist()
    assert answers.keys() >= {row["request_id"] for row in sample.rows if row["api"] == "Heartbeat"}, (
        "the shard lives on"
    )


def test_poison_and_unreadable_rows_of_every_api_and_version_are_answered_as_failures(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(shard: Shard, source: str, batch: pa.RecordBatch) -> ShardOutputs:
        from coordinator_udf.shard import apis as shard_apis
        from coordinator_udf.shard.batches import process_batch

        def raising(*_: Any) -> None:
            raise RuntimeError("out of cheese")

        handlers = dict(shard_apis.HANDLERS)
        shard_apis.HANDLERS.update(dict.fromkeys(handlers, raising))
        try:
            return process_batch(shard, source, batch)
        finally:
            shard_apis.HANDLERS.update(handlers)

    monkeypatch.setattr(shard_function, "process_batch", poisoned)
    log = EmbeddedLog.create(tmp_path / "log", 2, clock_skew_max_ms=None)
    everything = list(apis_and_versions())
    kinds: dict[str, dict[str, Any]] = {"misnumbered": {"api_version": 99}, "poison": {}, "unreadable": {"body": "{"}}
    for api, version in everything:
        # Batches begin with each of them.
        for kind, changed in kinds.items():
            asked = sample_request(api, version)
            rows = rows_of(api, version, asked, 1_700_000_000_000, f"{kind} {api} {version}", partitions=2)
            log.append([{**row, **changed} for row in rows])
    extended = Settings(group_consumer_client_assignors_enable=True, group_classic_client_extensions_enable=True)
    run(extended, max_rows=10)
    # One append is one micro-batch: of a shard that is decoded anew the first row can't be read and a later one raises.
    pair: list[dict[str, Any]] = []
    for kind in ("misnumbered", "poison"):
        asked = sample_request("JoinGroup", 5)
        rows = rows_of("JoinGroup", 5, asked, 1_700_000_000_001, f"{kind} in a pair", partitions=2)
        pair += ({**row, **kinds[kind]} for row in rows)
    assert len({row["partition"] for row in pair}) == 1
    log.append(pair)
    run(extended, max_rows=1)
    tables = read_tables(tmp_path / "tables")
    numbered = [table for table in tables.values() if "seq" in table.column_names]
    numbers = [(row["partition"], row["seq"]) for table in numbered for row in table.to_pylist()]
    assert len(set(numbers)) == len(numbers), "a number was given twice"
    nexts = [max(seq for place, seq in numbers if place == partition) + 1 for partition in range(2)]
    assert next_seqs(str(tmp_path / "tables"), 2) == nexts, "where a recovery goes on numbering"
    answers = {row["request_id"]: row for row in tables["group_responses"].to_pylist()}
    assert len(answers) == tables["group_responses"].num_rows == len(kinds) * len(everything) + 2, (
        "one answer a request"
    )
    assert {row["error_name"] for row in answers.values()} == {"UNKNOWN_SERVER_ERROR"}
    for api, version in everything:
        body = json.loads(answers[f"poison {api} {version}"]["body"])
        assert list(error_codes(body)) == [-1] * places_of_errors(api, version)
        unread = answers[f"unreadable {api} {version}"]["body"]
        if says_it_on_top(api, version):
            assert list(error_codes(json.loads(unread))) == [-1]
        else:
            assert unread is None
    reasons = {row["request_id"]: row["reason"] for row in tables["rejected_requests"].to_pylist()}
    assert reasons.keys() == answers.keys()
    assert all((reason == "out of cheese") == name.startswith("poison") for name, reason in reasons.items())
