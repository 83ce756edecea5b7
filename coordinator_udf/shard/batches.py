"""The edge of a shard: a record batch of the request log in, its outputs (tables.outputs) out.

Of the heartbeats, which are nearly all rows, only the columns that decide about them become Python objects, and their
answers are taken from the request's own columns.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.protocol.answer_json import heartbeat_json
from coordinator_udf.shard.batch_rows import BatchRows
from coordinator_udf.shard.heartbeat_fast_path import HeartbeatAnswers
from coordinator_udf.shard.outputs import to_output_rows
from coordinator_udf.shard.run import process
from coordinator_udf.shard.shard import Shard
from coordinator_udf.tables.outputs import OutputRows, Outputs

#: What an answer to a heartbeat takes over from its request.
_ANSWERED: Final = ["request_id", "api_version", "group_id", "member_id", "parts"]


class ShardOutputs(NamedTuple):
    """What a shard says.

    Attributes:
        decisions: all but the heartbeats' answers: rows by kind, each in the order of ``seq``.
        heartbeats: the answers to heartbeats that took the short way, in the order of ``seq``; None if there are none.
    """

    decisions: list[OutputRows]
    heartbeats: OutputRows | None

    def all(self) -> list[OutputRows]:
        """Returns both, as one."""
        return self.decisions if self.heartbeats is None else [*self.decisions, self.heartbeats]

    def outputs(self) -> Outputs:
        """Returns one table for each kind of output."""
        return Outputs.of(self.all())


def process_batch(shard: Shard, source: str, batch: pa.RecordBatch, *, short_way: bool = True) -> ShardOutputs:
    """Handles rows of the request log in order, whatever is in them; takes what the shard says.

    Args:
        shard: the shard that the rows belong to.
        source: the coordinator that the rows belong to; stands in every output.
        batch: columns of REQUEST_LOG, ``source`` not needed.
        short_way: False to let every heartbeat take the long way (for tests: both must say the same).
    """
    with _no_garbage_collection():
        # In a call of its own, so that what it made is gone before there is a search again.
        return _process(shard, source, batch, short_way=short_way)


def _process(shard: Shard, source: str, batch: pa.RecordBatch, *, short_way: bool) -> ShardOutputs:
    decisions, answers = process(shard, BatchRows(batch), short_way=short_way)
    return ShardOutputs(
        to_output_rows(decisions, source, shard.partition), _answers(source, shard.partition, batch, answers)
    )


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Puts the search for cyclic garbage off: among objects that nearly all stay alive it took half of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _answers(source: str, partition: int, batch: pa.RecordBatch, answers: HeartbeatAnswers) -> OutputRows | None:
    rows, seqs, times, codes = answers.arrays()
    count = len(rows)
    if count == 0:
        return None
    if count < batch.num_rows:
        batch = batch.select(_ANSWERED).take(pa.array(rows))
    columns: dict[str, pa.Array] = {name: batch.column(name) for name in _ANSWERED}
    columns["ts"] = pa.array(times)
    same: dict[str, Any] = {"source": source, "partition": partition, "api": "Heartbeat"}
    parts = pc.min_max(columns["parts"]).as_py()
    if columns["parts"].null_count == 0 and parts["min"] == parts["max"]:
        del columns["parts"]
        same["parts"] = parts["min"]
    versions = np.asarray(columns["api_version"])
    if versions.min() == versions.max() and codes.min() == codes.max():
        del columns["api_version"]
        same["api_version"], same["error_code"] = int(versions[0]), int(codes[0])
        same["body"] = heartbeat_json(int(versions[0]), int(codes[0]))
    else:
        columns["error_code"] = pa.array(codes.astype(np.int32))
        columns["body"] = _bodies(versions, codes)
    first_seq = int(seqs[0]) if seqs[-1] - seqs[0] == count - 1 else None
    if first_seq is None:
        columns["seq"] = pa.array(seqs)
    return OutputRows("responses", count, columns, same, first_seq, {"answered_by": "request_id"})


def _bodies(versions: np.ndarray, codes: np.ndarray) -> pa.Array:
    """Returns the answers' JSON: there are few different ones."""
    # Version and error in one number.
    different, places = np.unique(versions.astype(np.int64) << 32 | (codes + (1 << 16)), return_inverse=True)
    texts = [heartbeat_json(number >> 32, (number & 0xFFFFFFFF) - (1 << 16)) for number in different.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(places))
