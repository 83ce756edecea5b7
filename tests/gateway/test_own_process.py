"""Gateways in processes of their own: they append to the shared log and find their answers in the table."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from coordinator_udf.gateway.partition_ends import PartitionEnds
from coordinator_udf.gateway.responses_table import NewRows
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.streaming.lease import take_over
from coordinator_udf.tables.delta import OutputTables
from schemas.tables import table_arrow
from scripts.ports import free_port
from tests.conftest import ROOT
from tests.gateway import history
from tests.gateway.fleet import Fleet
from tests.gateway.in_process import PARTITIONS, InProcessCoordinator
from tests.gateway.wire import HEARTBEAT, Wire
from tests.waiting import wait

JOB = ROOT / "jobs" / "gateway.py"


def answers(*ids: str) -> pa.Table:
    rows = [
        dict.fromkeys(table_arrow("group_responses").names)
        | {"source": "live", "partition": 0, "seq": 0, "ts": 0, "request_id": request_id, "body": "{}"}
        for request_id in ids
    ]
    return pa.Table.from_pylist(rows, schema=table_arrow("group_responses"))


def read(table: NewRows) -> list[str]:
    return [row for found in table.read() for row in found.column("request_id").to_pylist()]


def test_only_what_is_new_is_read_and_each_answer_once(tmp_path: Path) -> None:
    uri = str(tmp_path / "group_responses")
    table = NewRows(uri)
    assert read(table) == []
    write_deltalake(uri, answers("a"))
    assert read(table) == ["a"]
    write_deltalake(uri, answers("b", "c"), mode="append")
    write_deltalake(uri, answers("d"), mode="append")
    assert read(table) == ["b", "c", "d"]
    assert read(table) == []
    late = NewRows(uri)
    assert read(late) == []
    DeltaTable(uri).optimize.compact()
    write_deltalake(uri, answers("e"), mode="append")
    assert read(table) == read(late) == ["e"]


def test_a_table_that_was_replaced_is_followed_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "group_responses")
    for request_id in "abc":
        write_deltalake(uri, answers(request_id), mode="append")
    table = NewRows(uri)
    assert read(table) == []
    shutil.rmtree(uri)
    write_deltalake(uri, answers("x"))
    monkeypatch.setattr("coordinator_udf.gateway.responses_table._LOOK_UP_S", 0.0)
    assert read(table) == []
    write_deltalake(uri, answers("y"), mode="append")
    assert read(table) == ["y"]


@contextmanager
def gateway_process(tmp_path: Path, log: Path, port: int | None = None, *, killed: bool = False) -> Iterator[int]:
    port = port or free_port()
    config = tmp_path / "settings.toml"
    config.write_text('[[topics]]\nname = "t1"\npartitions = 4\n')
    command = [sys.executable, str(JOB), "--listen", f"127.0.0.1:{port}", "--log", str(log)]
    output = (tmp_path / f"gateway-{port}.log").open("wb")
    process = subprocess.Popen(
        [*command, "--tables", str(tmp_path / "tables"), "--config", str(config)],
        stdout=output,
        stderr=output,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        wait(lambda: _listens(port), "the gateway listens", (tmp_path / f"gateway-{port}.log").read_text)
        yield port
        if not killed:
            process.terminate()
            assert process.wait(120) == 0
    finally:
        process.kill()
        output.close()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_gateway_of_its_own_brings_neither_the_stream_nor_delta_for_spark() -> None:
    loaded = "import jobs.gateway, sys; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "coordinator_udf.gateway.own_process" in done.stdout
    assert "coordinator_udf.streaming.coordinator" not in done.stdout
    assert "'delta'" not in done.stdout


#: Takes the tables in a folder over as a coordinator does, says so, and dies when it is told to.
HOLDER = """
import os, signal, sys
from coordinator_udf.streaming.lease import take_over
from coordinator_udf.tables.delta import OutputTables
with take_over(OutputTables(sys.argv[1]), sys.argv[1] + "/checkpoint"):
    print("it holds the lease", flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_heartbeats_are_taken_on_trust_when_the_coordinator_has_died(tmp_path: Path) -> None:
    log = EmbeddedLog.create(tmp_path / "log.db", PARTITIONS)
    holder = [sys.executable, "-c", HOLDER, str(tmp_path / "tables")]
    with (
        subprocess.Popen(holder, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as coordinator,
        gateway_process(tmp_path, log.path) as port,
        Wire(port, 120) as wire,
    ):
        assert coordinator.stdout is not None
        assert coordinator.stdout.readline() == "it holds the lease\n"
        wire.send("Heartbeat", 4, HEARTBEAT)
        wait(lambda: "Heartbeat" in appended(log), "it is in the log")
        coordinator.communicate("die\n")
        assert wire.receive()["errorCode"] == 0
        # A new one that has answered nothing yet loads its groups.
        with take_over(OutputTables(str(tmp_path / "tables")), str(tmp_path / "checkpoint")):
            assert wire.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == 0
    log.close()


def appended(log: EmbeddedLog) -> list[str]:
    return [api for batch in log.read(0, log.end()) for api in batch.column("api").to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_when_gateways_are_killed_no_acknowledged_commit_is_lost_and_none_is_half(tmp_path: Path, seed: int) -> None:
    log = EmbeddedLog.create(tmp_path / "log.db", PARTITIONS)
    tables = tmp_path / "tables"

    def store(table: pa.Table) -> None:
        if table.num_rows:
            write_deltalake(str(tables / "group_responses"), table, mode="append")

    coordinator = InProcessCoordinator(log, Settings(), store, 0.02)
    coordinator.ends = Written(tables / "consumer_offsets")
    coordinator.start()
    port = free_port()
    committer = history.Committer(f"127.0.0.1:{port}", "simple", {("t1", number) for number in range(4)}, seed)
    moments = random.Random(seed)
    with committer:
        for life in range(3):
            with gateway_process(tmp_path, log.path, port, killed=life < 2):
                wait(partial(committer.is_heard_since, len(committer.attempts)), "commits are acknowledged")
                time.sleep(moments.uniform(0, 0.5))
    coordinator.stop()
    log.close()
    assert history.assert_commits_are_whole(history.records(tables), committer) >= 3


class Written(PartitionEnds):
    """Writes the records to a table."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def add(self, records: pa.Table) -> None:
        if len(records):
            write_deltalake(str(self._path), records, mode="append")


@pytest.mark.slow
def test_members_of_one_group_come_through_two_gateways(tmp_path: Path) -> None:
    log = EmbeddedLog.create(tmp_path / "log.db", PARTITIONS)
    uri = str(tmp_path / "tables" / "group_responses")

    def store(table: pa.Table) -> None:
        if table.num_rows:
            write_deltalake(uri, table, mode="append")

    kafka = Settings.from_kafka({"group.initial.rebalance.delay.ms": 500})
    coordinator = InProcessCoordinator(log, kafka, store, 0.02)
    with gateway_process(tmp_path, log.path) as one, gateway_process(tmp_path, log.path) as other:
        coordinator.start()
        with Fleet(tmp_path, f"127.0.0.1:{one}") as fleet:
            first = fleet.start("kafka-python", group="g", topics=["t1"])
            second = fleet.start("confluent", group="g", topics=["t1"], address=f"127.0.0.1:{other}")
            fleet.wait_for_assignment([first, second], {("t1", i) for i in range(4)})
            first.close()
            fleet.wait_for_assignment([second], {("t1", i) for i in range(4)})
            second.close()
        with Wire(one) as wire:
            assert wire.ask("Heartbeat", 4, HEARTBEAT)["errorCode"] == 25
    coordinator.stop()
    assert coordinator.rejected == 0
    log.close()
