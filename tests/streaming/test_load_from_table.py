"""Kafka's coordinator fails over in the recordings; ours loses its checkpoint there and loads from consumer_offsets.

What `--recover-from-offsets` puts on the log is put on it here, made of the table's rows, and a new shard goes on.
"""

from __future__ import annotations

import gzip
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import pyarrow.compute as pc
import pytest

from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.judge.compare import Excluded, compare
from coordinator_udf.replay.judge.our_answers import our_outputs
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import ReplaySource
from coordinator_udf.replay.tasks.in_process import FAILOVER, request_batch
from coordinator_udf.shard.batches import process_batch
from coordinator_udf.shard.shard import Shard
from coordinator_udf.streaming.recovery import load_row, load_rows
from coordinator_udf.tables.assignment_join import RecordAt, complete_assignments
from coordinator_udf.tables.outputs import Outputs
from coordinator_udf.tables.rows import to_tables
from tests.conftest import SHARED
from tests.shard.samples import SAMPLES


def fails_over(trace: Path) -> bool:
    with gzip.open(trace, "rt", encoding="utf-8") as lines:
        return any(line.startswith('{"type":"failover"') for line in lines)


#: The shipped one, and all that there are where there are more.
TRACES = [
    trace for trace in [*SAMPLES, *sorted((SHARED / "oracle" / "traces").glob("failover-*"))] if fails_over(trace)
]


class Lives:
    """A coordinator of one shard that loses all but its tables, again and again.

    Attributes:
        said: what it said in all its lives, assignments completed.
        waited: the requests that were not answered when it failed.
    """

    def __init__(self, source: ReplaySource) -> None:
        self.source = source
        self.said = Outputs.of(())
        self.waited: set[str] = set()
        self._asked: set[str] = set()
        self._shard = Shard(0, source.settings)

    def run(self) -> None:
        rows: list[dict[str, Any]] = []
        for row in self.source.rows:
            if row["api"] != FAILOVER:
                rows.append(row)
                continue
            self._handle([*rows, {**row, "api": "Tick"}])
            topics = [
                told for told in self.source.rows if told["api"] == "TopicMetadata" and told["offset"] < row["offset"]
            ]
            # A log never goes back in time.
            load = [*self._load(), *topics[-1:], {**row, "api": "LoadEnd"}]
            rows = [{**loading, "offset": 0, "log_ts": row["log_ts"]} for loading in load]
        self._handle(rows)

    def _handle(self, rows: list[dict[str, Any]]) -> None:
        self._asked |= {row["request_id"] for row in rows if row["request_id"] is not None}
        batch = request_batch(self.source.source, rows)
        outputs = process_batch(self._shard, self.source.source, batch).outputs()
        self.said = Outputs.joined([self.said, complete_assignments(outputs, self._stored)])

    def _load(self) -> list[dict[str, Any]]:
        answered = self.said.responses.column("request_id")
        self.waited |= self._asked - set(answered.to_pylist())
        self._shard = Shard(0, self.source.settings)
        next_seq = max(pc.max(rows.column("seq")).as_py() or 0 for rows in self.said) + 1
        return [load_row(0, {"nextSeq": next_seq}), *load_rows(newest(self._records()))]

    def _records(self) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", to_tables(self.said)["consumer_offsets"].to_pylist())

    def _stored(self, wanted: list[RecordAt]) -> dict[RecordAt, dict[str, bytes]]:
        return {
            (row["source"], row["partition"], row["offset"]): {
                member["member_id"]: member["assignment"] for member in row["group_metadata"]["members"]
            }
            for row in self._records()
            if (row["source"], row["partition"], row["offset"]) in wanted
        }


def newest(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest record of each key, and all that belong to transactions, in order."""
    found: dict[tuple[str, int | None], dict[str, Any]] = {}
    for row in records:
        in_txn = row["producer_id"] is not None or row["record_type"] == "EndTxnMarker"
        found[row["key"], row["offset"] if in_txn else None] = row
    return sorted(found.values(), key=itemgetter("offset"))


@pytest.mark.parametrize(
    "trace", TRACES, ids=lambda trace: f"{trace.parent.parent.name}-{trace.name.partition('.')[0]}"
)
def test_after_a_load_from_the_table_all_is_answered_as_kafka_did_after_its_failover(trace: Path) -> None:
    source = read_source(trace, trace.name, ReplayOptions())
    lives = Lives(source)
    lives.run()
    # Kafka sends who waits elsewhere; after a loss they ask again and get the loading errors.
    verdict = compare(source.source, source.recording, our_outputs(lives.said), Excluded(frozenset(lives.waited), {}))
    assert verdict.differences == []
    assert sum(verdict.identical.values()) > 20 * len(lives.waited)
