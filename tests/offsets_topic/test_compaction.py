"""Compaction changes nothing that can be asked, whatever the log, and whoever appends meanwhile."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from coordinator_udf.offsets_topic.compaction import Compaction, Removed, compact, pack_table
from coordinator_udf.offsets_topic.import_export import import_file
from coordinator_udf.offsets_topic.records import Record
from coordinator_udf.offsets_topic.rows import to_columns
from coordinator_udf.sql.registration import register
from jobs.compact_offsets import main
from schemas.tables import table_arrow
from tests.conftest import ROOT
from tests.nightly import some_or_many
from tests.offsets_topic.replaying import known

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = dict[str, Any]
SCHEMA: Final = table_arrow("consumer_offsets")
EXCERPT: Final = ROOT / "tests" / "data" / "consumer_offsets.jsonl.gz"


def row(place: tuple[str, int, int, int], record: Record, producer_id: int | None = None) -> Row:
    """A row at a place: source, partition, offset and time."""
    producer = {"producer_id": producer_id, "producer_epoch": None if producer_id is None else 0}
    where = dict(zip(("source", "partition", "offset", "ts"), place, strict=True))
    return {**where, "request_id": None, **to_columns(record), **producer, "stored": None}


def commit(topic: int, offset: int | None, *, legacy: bool = False) -> Record:
    key = {
        "type": "LegacyOffsetCommit" if legacy else "OffsetCommit",
        "group": "g",
        "topic": f"t{topic}",
        "partition": 0,
    }
    if offset is None:
        return Record(key, None, None)
    return Record(key, 0, {"offset": offset, "metadata": "", "commitTimestamp": offset})


def group(name: str, generation: int | None, members: int = 1) -> Record:
    key = {"type": "GroupMetadata", "group": name}
    if generation is None:
        return Record(key, None, None)
    member = {"memberId": "m", "clientId": "c", "clientHost": "/h", "sessionTimeout": 1}
    member |= {"subscription": "", "assignment": "AQ=="}
    value = {
        "protocolType": "consumer",
        "generation": generation,
        "protocol": "p",
        "leader": "m",
        "members": [member] * members,
    }
    return Record(key, 0, value)


def marker(producer_id: int, *, committed: bool) -> Record:
    key = {"type": "EndTxnMarker", "producerId": producer_id, "producerEpoch": 0}
    return Record(key, None, {"committed": committed})


def random_log(source: str, seed: int, length: int) -> list[Row]:
    """A log of three partitions in which few keys meet many commits, transactions and tombstones."""
    draw = random.Random(seed)
    rows = []
    for partition in range(3):
        generation = 0
        for offset in range(length):
            producer: int | None = draw.choice([None, None, 1, 2])
            what = draw.random()
            if what < 0.55:
                record = commit(draw.randrange(4), offset, legacy=producer is None and draw.random() < 0.2)
            elif what < 0.65:
                record = commit(draw.randrange(4), None)
                producer = draw.choice([None, None, None, producer])
            elif what < 0.8:
                producer = producer or 1
                record = marker(producer, committed=draw.random() < 0.7)
            else:
                generation += draw.random() < 0.5
                record = group(f"g{draw.randrange(2)}", None if draw.random() < 0.3 else generation)
                producer = None
            rows.append(row((source, partition, offset, offset * 10 + draw.randrange(10)), record, producer))
    # As the table will give them back.
    return list(pa.Table.from_pylist(rows, schema=SCHEMA).to_pylist())


def append(table: Path, rows: list[Row]) -> None:
    table.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            write_deltalake(str(table), pa.Table.from_pylist(rows, schema=SCHEMA), mode="append")
            return
        except CommitFailedError:
            continue


def stored(table: Path) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for record in DeltaTable(str(table)).to_pyarrow_table().to_pylist():
        found[record["source"]].append(record)
    return found


@pytest.mark.parametrize(("lag_ms", "retention_ms"), some_or_many([(150, 100)], [(0, 0), (150, 100)]))
def test_whoever_replays_the_log_gets_the_same(
    spark: SparkSession, tmp_path: Path, lag_ms: int, retention_ms: int
) -> None:
    table = tmp_path / "consumer_offsets"
    logs = {f"log {seed}": random_log(f"log {seed}", seed, 60) for seed in range(some_or_many(15, 100))}
    append(table, [record for log in logs.values() for record in log])
    removed = compact(spark, str(table), Compaction(delete_retention_ms=retention_ms, min_lag_ms=lag_ms))
    left = stored(table)
    assert sum(shard.total for shard in removed) == sum(map(len, logs.values())) - sum(map(len, left.values())) > 0
    for source, log in logs.items():
        assert known(left[source]) == known(log)
        _same_with_whatever_follows(log, left[source])
        if lag_ms:
            _untouched_above(removed, source, log, left[source])
    again = compact(spark, str(table), Compaction(delete_retention_ms=retention_ms, min_lag_ms=lag_ms))
    assert sum(shard.total for shard in again) == 0


def _same_with_whatever_follows(log: list[Row], left: list[Row]) -> None:
    for seed in range(5):
        following = [{**record, "offset": record["offset"] + 1000} for record in random_log("more", seed, 15)]
        assert known(left + following) == known(log + following)


def _untouched_above(removed: list[Removed], source: str, log: list[Row], left: list[Row]) -> None:
    for shard in removed:
        if shard.source == source:
            above = [
                [r for r in rows if r["partition"] == shard.partition and r["offset"] >= shard.watermark]
                for rows in (log, sorted(left, key=lambda r: r["offset"]))
            ]
            assert above[0] == above[1]
            assert above[0]


def test_what_goes_and_what_stays(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "consumer_offsets"
    records: list[tuple[Record, int | None]] = [
        (group("a", 1), None),  # 0: of an older generation
        (group("a", 2), None),  # 1: stays, the coordinator may remember assignments by it
        (group("a", 2), None),  # 2: a static member came back
        (commit(0, 5), None),  # 3: superseded by a transaction
        (commit(0, 6), 1),  # 4: committed
        (marker(1, committed=True), 1),  # 5: stays for 4
        (commit(1, 7), 2),  # 6: aborted
        (marker(2, committed=False), 2),  # 7: nothing depends on it
        (commit(2, 8), None),  # 8: deleted
        (commit(2, None), None),  # 9: a tombstone
        (commit(3, 8), 3),  # 10: pending, superseded in its own transaction
        (commit(3, 9), 3),  # 11: pending
        (commit(3, 4), None),  # 12: stays beside it
        (commit(0, 1), 4),  # 13: the last row
    ]
    append(table, [row(("s", 0, at, 100 + at), record, producer) for at, (record, producer) in enumerate(records)])
    (removed,) = compact(spark, str(table), Compaction(delete_retention_ms=0, min_lag_ms=0))
    assert removed == Removed("s", 0, 14, 14, superseded=4, tombstones=1, aborted=1, markers=1)
    assert sorted(record["offset"] for record in stored(table)["s"]) == [1, 2, 4, 5, 11, 12, 13]


def test_only_what_is_named_is_compacted(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "consumer_offsets"
    append(table, random_log("a", 1, 30) + random_log("b", 2, 30))
    removed = compact(spark, str(table), Compaction(source="b", partition=2, delete_retention_ms=0, min_lag_ms=0))
    assert [(shard.source, shard.partition) for shard in removed] == [("b", 2)]
    left = stored(table)
    assert len(left["a"]) == 90
    assert len(left["b"]) == 90 - removed[0].total


def test_the_views_answer_as_before(spark: SparkSession, tmp_path: Path) -> None:
    import_file(EXCERPT, tmp_path, "a broker")

    def answers() -> dict[str, list[str]]:
        register(spark, str(tmp_path))
        return {name: sorted(map(str, spark.table(name).collect())) for name in ("offsets", "members", "assignments")}

    before = answers()
    assert before["offsets"]
    removed = compact(spark, str(tmp_path / "consumer_offsets"), Compaction(delete_retention_ms=0, min_lag_ms=0))
    assert sum(shard.total for shard in removed) > 2000
    assert answers() == before


def test_the_job_says_what_it_did(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(tmp_path / "consumer_offsets", random_log("log", 1, 20))
    append(tmp_path / "consumer_offsets", random_log("other", 2, 20))
    main(tables=str(tmp_path), source="log", delete_retention_ms=0, min_lag_ms=0)
    left = stored(tmp_path / "consumer_offsets")
    told, progress = capsys.readouterr()
    assert progress.splitlines()[-1] == "compact: packing small files"
    assert f"removed {60 - len(left['log'])} of 60 records\n" in told
    assert "source 'log' partition 2: " in told
    assert "source 'other'" not in told
    assert "packed 2 files into 1" in told
    with pytest.raises(SystemExit):
        main(tables=str(tmp_path / "elsewhere"))
    assert "elsewhere/consumer_offsets is no Delta table; --tables expects" in capsys.readouterr().err


APPENDER: Final = """
import sys, time
from pathlib import Path
from deltalake.exceptions import CommitFailedError
from tests.offsets_topic.test_compaction import append, random_log

table, sources = Path(sys.argv[1]), int(sys.argv[2])
logs = [random_log(f"log {seed}", seed, 120) for seed in range(sources)]
print("ready", flush=True)
for offset in range(60, 120):
    records = [record for log in logs for record in log if record["offset"] == offset]
    # As a coordinator does.
    for attempt in range(10):
        try:
            append(table, records)
            break
        except CommitFailedError:
            pass
    else:
        sys.exit("never appended")
    time.sleep(0.05)
"""


def test_others_append_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "consumer_offsets"
    logs = {f"log {seed}": random_log(f"log {seed}", seed, 120) for seed in range(3)}
    for start in range(0, 60, 6):
        append(table, [r for log in logs.values() for r in log if start <= r["offset"] < start + 6])
    command = [sys.executable, "-c", APPENDER, str(table), "3"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as appender:
        assert appender.stdout is not None
        assert appender.stdout.readline() == b"ready\n"
        during = 0
        while appender.poll() is None:
            before = DeltaTable(str(table)).version()
            compact(spark, str(table), Compaction(delete_retention_ms=0, min_lag_ms=100))
            pack_table(str(table))
            # More commits than the compaction's own three at most: rows came in between.
            during += DeltaTable(str(table)).version() > before + 3
        assert appender.returncode == 0
    assert during > 0
    compact(spark, str(table), Compaction(delete_retention_ms=0, min_lag_ms=0))
    left = stored(table)
    for source, log in logs.items():
        assert known(left[source]) == known(log)


def test_no_row_is_there_twice_if_two_pack_at_once(tmp_path: Path) -> None:
    """As beside a coordinator, whose upkeep packs the same table. delta-rs lets both go through by itself."""
    table = tmp_path / "consumer_offsets"
    rows = random_log("log", 7, 120)
    for start in range(0, 120, 6):
        append(table, rows[start : start + 6])
    barrier = threading.Barrier(3)

    def run() -> tuple[int, int]:
        barrier.wait()
        return pack_table(str(table), attempts=20)

    with ThreadPoolExecutor(3) as pool:
        counts = [future.result() for future in [pool.submit(run) for _ in range(3)]]
    assert sum(gone for gone, _ in counts) >= 20
    assert sorted(row["offset"] for row in DeltaTable(str(table)).to_pyarrow_table().to_pylist()) == list(range(120))


def test_who_began_to_pack_earlier_gives_way(tmp_path: Path) -> None:
    table = tmp_path / "consumer_offsets"
    rows = random_log("log", 7, 12)
    for row in rows:
        append(table, [row])
    first = DeltaTable(str(table))
    count = first.to_pyarrow_table().num_rows
    assert pack_table(str(table))[1] == 1
    with pytest.raises(CommitFailedError):
        first.optimize.compact()
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == count


def test_two_compactions_at_once_both_end_well(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "consumer_offsets"
    log = random_log("log", 7, 120)
    append(table, log)
    ends: list[int] = []

    def run() -> None:
        removed = compact(spark, str(table), Compaction(delete_retention_ms=0, min_lag_ms=0))
        ends.append(sum(shard.total for shard in removed))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends) == 2
    left = stored(table)["log"]
    assert known(left) == known(log)
    assert max(ends) == len(log) - len(left)
