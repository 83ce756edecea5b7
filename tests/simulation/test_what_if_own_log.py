"""What-if from what a coordinator of this project has logged: the same groups as from a broker's log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.rows import control_rows, request_rows
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.topics import topic_changes
from coordinator_udf.simulation.what_if.change import Change
from coordinator_udf.simulation.what_if.comparison import compare
from coordinator_udf.simulation.what_if.group_log import GroupLog, read_groups
from coordinator_udf.simulation.what_if.log_entries import read_entries
from coordinator_udf.user_errors import InputError
from schemas.requests import request_log_arrow
from tests.conftest import SAMPLE_LOG

_APIS = {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "ConsumerGroupHeartbeat"}


def answers_and_rows(entries: Iterable[Entry]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of answers to requests of the sample, and those of a request log with them, without its connections."""
    topics = {"topics": [{"name": name, "partitions": 4, "id": f"{name}{'A' * 20}"} for name in ("t1", "t2")]}
    rows = control_rows(partitions=1, log_ts=1, api="TopicMetadata", body=topics)
    answers = []
    for entry in entries:
        if entry.api in _APIS:
            rows += request_rows(
                partitions=1,
                log_ts=entry.arrived_us // 1000,
                request_id=str(entry.number),
                api=entry.api,
                api_version=entry.api_version,
                client_id=entry.client_id,
                client_host=entry.client_host,
                body=entry.request,
            )
            body = msgspec.json.encode(entry.response).decode()
            answers.append({"request_id": str(entry.number), "ts": entry.answered_us // 1000, "body": body})
    return answers, rows


def write_tables(root: Path, answers: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Writes the tables of a coordinator."""
    write_deltalake(str(root / "group_responses"), pa.Table.from_pylist(answers))
    numbered = [{**row, "source": "crash", "offset": number} for number, row in enumerate(rows)]
    write_deltalake(str(root / "request_log"), pa.Table.from_pylist(numbered, request_log_arrow()))


def _groups(path: Path) -> dict[str, GroupLog]:
    return {group.group_id: group for group in read_groups(read_entries(path), {})}


def test_the_tables_of_a_replay_tell_what_the_log_tells(tmp_path: Path) -> None:
    answers, rows = answers_and_rows(read_entries(SAMPLE_LOG))
    write_tables(tmp_path, answers, rows)
    own, brokers = _groups(tmp_path), _groups(SAMPLE_LOG)
    assert own.keys() == brokers.keys()
    for group_id, group in own.items():
        assert [one.trigger for one in group.rebalances] == [one.trigger for one in brokers[group_id].rebalances]
        assert [member.name for member in group.plan.members] == [m.name for m in brokers[group_id].plan.members]
        calibration = compare(group, Change(), range(1), (None, None)).calibration
        assert calibration.matched == calibration.recorded == calibration.simulated


def test_the_log_of_a_live_coordinator_stands_beside_its_tables(tmp_path: Path) -> None:
    answers, rows = answers_and_rows(read_entries(SAMPLE_LOG))
    write_deltalake(str(tmp_path / "tables" / "group_responses"), pa.Table.from_pylist(answers))
    log = EmbeddedLog.create(tmp_path / "log", partitions=1, clock_skew_max_ms=None)
    log.append(rows)
    log.close()
    own = _groups(tmp_path / "tables")
    assert {name: len(group.rebalances) for name, group in own.items()} == {"crash-a": 5, "crash-b": 2}


def test_topics_of_the_tables_come_grow_and_go(tmp_path: Path) -> None:
    """Each row has the whole list; one that has another id than before was made again."""
    lists = [{"a": (2, "A"), "b": (1, "B")}, {"a": (4, "A")}, {"a": (4, "A"), "b": (3, "B2")}, {"a": (4, "A2")}]
    rows = [
        row
        for number, topics in enumerate(lists)
        for row in control_rows(
            partitions=2,
            log_ts=1_000 * number,
            api="TopicMetadata",
            body={"topics": [{"name": name, "partitions": count, "id": id_} for name, (count, id_) in topics.items()]},
        )
    ]
    answers, requests = answers_and_rows(read_entries(SAMPLE_LOG))
    write_tables(tmp_path, answers, [*rows, *(row for row in requests if row["api"] != "TopicMetadata")])
    changes = [
        (change.ts_us // 1_000_000, change.kind, change.name, change.partitions)
        for entry in read_entries(tmp_path)
        for change in topic_changes(entry)
    ]
    assert changes == [
        (0, "create", "a", 2),
        (0, "create", "b", 1),
        (1, "delete", "b", 0),
        (1, "grow", "a", 4),
        (2, "create", "b", 3),
        (3, "delete", "a", 0),
        (3, "delete", "b", 0),
        (3, "create", "a", 4),
    ]


def test_tables_without_requests_are_refused(tmp_path: Path) -> None:
    answers, _ = answers_and_rows(read_entries(SAMPLE_LOG))
    write_deltalake(str(tmp_path / "group_responses"), pa.Table.from_pylist(answers))
    with pytest.raises(InputError, match="requests of one coordinator, but there are none"):
        read_entries(tmp_path)
