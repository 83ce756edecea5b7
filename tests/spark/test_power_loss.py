"""A loss of power: whatever wasn't synced is thrown away, and all that was answered is there, and goes on."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from typer.testing import CliRunner

from coordinator_udf.commands import live
from coordinator_udf.commands.job import as_app
from coordinator_udf.settings.coordinator import FIELDS
from coordinator_udf.streaming.checkpoint_files import LocalFiles
from coordinator_udf.streaming.lease import StartError, take_over
from coordinator_udf.streaming.power_loss import refuse_tables_ahead, repair_after_power_loss
from coordinator_udf.tables.delta import WRITE_ORDER, OutputTables
from coordinator_udf.tables.durability import cut_torn_end
from tests.conftest import ROOT
from tests.nightly import only_at_night, some_or_many
from tests.spark.conftest import Run, Scenario, in_order, read_tables
from tests.spark.killed_driver import NOT_DURABLE
from tests.spark.test_kills import DRIVER, _text
from tests.spark.unsynced import STRACE, Disk
from tests.tables.test_epoch import batch

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MAX_ROWS = 60
#: The micro-batches whose answers were given, when the driver dies.
ANSWERED = 3


@pytest.fixture(scope="module", params=some_or_many(["commit"], ["commit", "answer"]))
def crashed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, sample: Scenario
) -> tuple[Path, Disk]:
    """A root whose driver died after its first commit of a micro-batch, or after its last; and what the disk has."""
    root = tmp_path_factory.mktemp(f"power-{request.param}")
    disk = crash(root, sample, request.param)
    assert disk.syncs > 0
    return root, disk


def crash(root: Path, sample: Scenario, point: str, **environment: str) -> Disk:
    """Runs a driver until it dies; what the disk has then."""
    if shutil.which("strace") is None:
        pytest.skip("strace isn't here")
    sample.make_log(root / "log", [7]).close()
    settings = [f"{name}={_text(getattr(sample.settings, field.name))}" for name, field in FIELDS.items()]
    after = ANSWERED if point == "commit" else ANSWERED - 1
    trace = root / "strace"
    done = subprocess.run(
        [
            *(*STRACE, "-o", str(trace), sys.executable, str(DRIVER), str(root), str(MAX_ROWS)),
            *(point, str(after), "0", "0", "0", *settings),
        ],
        input=b"\n",
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=False,
    )
    assert done.returncode != 0, done.stderr.decode()[-4_000:]
    return Disk(trace, root)


@only_at_night("the tests below, which it shows to be able to fail")
def test_without_durable_the_same_loss_takes_what_was_answered(tmp_path: Path, sample: Scenario) -> None:
    """So that the tests below can fail: their disk forgets what nobody synced."""
    disk = crash(tmp_path, sample, "answer", **{NOT_DURABLE: "1"})
    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    assert OutputTables(str(tmp_path / "tables")).newest_batch("group_responses", query_id) >= ANSWERED - 1
    for name in ("tables", "checkpoint"):
        disk.lose(tmp_path / name, None)
    repair_after_power_loss(str(tmp_path / "tables"), str(tmp_path / "checkpoint"))
    there = DeltaTable.is_deltatable(str(tmp_path / "tables" / "group_responses"))
    assert not there or (
        (OutputTables(str(tmp_path / "tables")).newest_batch("group_responses", query_id) or -1) < ANSWERED - 1
    )


@pytest.mark.parametrize("seed", some_or_many([None], [None, 1, 2]))
def test_what_was_answered_is_there_after_a_loss_of_power(
    tmp_path: Path, crashed: tuple[Path, Disk], sample: Scenario, run: Run, seed: int | None
) -> None:
    root, disk = crashed
    kept = root.with_name(f"{root.name}-kept")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(root, kept)
    try:
        lost = [
            disk.lose(root / name, None if seed is None else random.Random(seed)) for name in ("tables", "checkpoint")
        ]
        assert seed is not None or sum(map(sum, lost)) > 0, "there is always something under way"
        for name in ("log", "tables", "checkpoint"):
            (shutil.copytree if (root / name).is_dir() else shutil.copy)(root / name, tmp_path / name)
    finally:
        shutil.rmtree(root)
        kept.rename(root)
    reboot(tmp_path / "tables")
    repair_after_power_loss(str(tmp_path / "tables"), str(tmp_path / "checkpoint"))
    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    for name in ("consumer_offsets", "group_responses"):
        assert OutputTables(str(tmp_path / "tables")).newest_batch(name, query_id) >= ANSWERED - 1, name
    run(sample.settings, max_rows=MAX_ROWS, fold_after_rows=0)
    found = read_tables(tmp_path / "tables")
    for name, expected in sample.expected.items():
        assert found[name].to_pylist() == in_order(name, expected).to_pylist(), name


def reboot(tables: Path) -> None:
    """Lets the lease be of another boot, if it can be read at all."""
    lease = tables / "_coordinator" / "lease.json"
    text = lease.read_text()
    if text.endswith("}"):
        lease.write_text(json.dumps(json.loads(text) | {"boot_id": "before"}))


def test_the_end_of_a_log_that_was_torn_is_cut_off(tmp_path: Path) -> None:
    tables = OutputTables(str(tmp_path))
    for number in range(6):
        tables.write(batch(number), "query", number)
    table = tmp_path / "group_responses"
    commits = sorted((table / "_delta_log").glob("*.json"))
    added = json.loads(commits[4].read_text().splitlines()[1])["add"]["path"]
    assert cut_torn_end(table, tmp_path / "torn") == 0
    (table / added).write_bytes((table / added).read_bytes()[:-1])
    commits[6].write_text("")
    assert cut_torn_end(table, tmp_path / "torn") == 3
    assert sorted(path.name for path in (tmp_path / "torn").iterdir()) == [
        f"group_responses-{path.name}" for path in commits[4:]
    ]
    again = OutputTables(str(tmp_path))
    assert again.newest_batch("group_responses", "query") == 2
    for number in range(6):
        again.write(batch(number), "query", number)
    assert {DeltaTable(str(tmp_path / name)).count() for name in WRITE_ORDER} == {6}


def test_metrics_begin_after_what_is_torn_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They read the tables before the query starts, and so does the gateway."""
    tables = OutputTables(str(tmp_path / "tables"))
    for number in range(3):
        tables.write(batch(number), "query", number)
    tables.close()
    lease = tmp_path / "tables" / "_coordinator" / "lease.json"
    lease.parent.mkdir(exist_ok=True)
    with take_over(OutputTables(str(tmp_path / "tables")), str(tmp_path / "checkpoint")):
        text = lease.read_text()
    lease.write_text(text)
    reboot(tmp_path / "tables")
    newest = max((tmp_path / "tables" / "consumer_offsets" / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-40])
    with pytest.raises(DeltaError):
        DeltaTable(str(newest.parent.parent))

    class Begun(Exception):
        pass

    def begin(*_: object, **__: object) -> None:
        raise Begun

    monkeypatch.setattr(live, "coordinator_session", begin)
    with pytest.raises(Begun):
        CliRunner().invoke(
            as_app(live.main),
            ["--root", str(tmp_path), "--metrics", "127.0.0.1:0"],
            catch_exceptions=False,
        )
    assert DeltaTable(str(newest.parent.parent)).version() >= 0


def test_a_torn_checkpoint_of_a_log_is_dropped(tmp_path: Path) -> None:
    tables = OutputTables(str(tmp_path))
    for number in range(3):
        tables.write(batch(number), "query", number)
    table = tmp_path / "group_responses"
    DeltaTable(str(table)).create_checkpoint()
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(b"")
    assert cut_torn_end(table, tmp_path / "torn") == 0
    assert not checkpoint.exists()
    assert DeltaTable(str(table)).count() == 3


def test_tables_that_are_ahead_of_a_checkpoint_are_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    tables = OutputTables(str(tmp_path / "tables"))
    refuse_tables_ahead(tables, LocalFiles(str(checkpoint)))
    (checkpoint / "metadata").write_text('{"id": "query"}')
    (checkpoint / "offsets" / "0").write_text("v1")
    tables.write(batch(0), "query", 0)
    refuse_tables_ahead(tables, LocalFiles(str(checkpoint)))
    tables.write(batch(1), "query", 1)
    with pytest.raises(StartError, match=r"has micro-batch 1 of the query .* which ends with 0"):
        refuse_tables_ahead(tables, LocalFiles(str(checkpoint)))
