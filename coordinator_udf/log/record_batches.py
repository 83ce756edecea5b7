"""The rows of an append as an Arrow record batch of schemas.requests.REQUEST_LOG, and as the bytes of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from coordinator_udf.log.partition_bytes import by_partition, from_bytes, to_bytes
from coordinator_udf.protocol.errors import BadRequest
from schemas.requests import REQUEST_COLUMNS, request_log_arrow

SCHEMA: Final = request_log_arrow()

#: The columns that an appender gives; the log adds the others.
GIVEN_COLUMNS: Final = tuple(name for name in REQUEST_COLUMNS if name not in ("source", "offset"))


def to_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """Returns rows as the columns that an appender gives.

    Raises:
        BadRequest: a column is missing or has a wrong type.
    """
    try:
        return {name: pa.array([row[name] for row in rows], SCHEMA.field(name).type) for name in GIVEN_COLUMNS}
    except KeyError as error:
        raise BadRequest("a row of the request log", f"lacking {error}", "every column of REQUEST_LOG") from None
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise BadRequest("a row of the request log", str(error), "the column types of REQUEST_LOG") from error


def checked_columns(columns: Mapping[str, pa.Array], partitions: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns ``partition`` and ``log_ts`` of what an appender gives to a log with so many partitions.

    Raises:
        BadRequest: a column is missing, there is no row, or one names a partition that isn't there.
    """
    missing = [name for name in GIVEN_COLUMNS if name not in columns]
    if missing:
        raise BadRequest("columns of the request log", sorted(columns), "also " + ", ".join(missing))
    partition = _whole_numbers(columns["partition"], "partition")
    log_ts = _whole_numbers(columns["log_ts"], "log_ts")
    if len(partition) == 0:
        raise BadRequest("rows", "none", "at least one row an append")
    if partition.min() < 0 or partition.max() >= partitions:
        wrong = partition.min() if partition.min() < 0 else partition.max()
        raise BadRequest("partition", int(wrong), f"0 to {partitions - 1}, the partitions of the log")
    return partition, log_ts


def _whole_numbers(column: pa.Array, name: str) -> np.ndarray:
    if column.null_count:
        raise BadRequest(name, None, "a whole number in every row")
    return np.array(column, dtype=np.int64)


def next_offsets(batches: Iterable[pa.RecordBatch]) -> dict[int, int]:
    """Returns for each partition that has rows in the batches the offset after its last one."""
    ends: dict[int, int] = {}
    for batch in batches:
        # Offsets rise within a partition.
        ends.update(zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True))
    return {partition: offset + 1 for partition, offset in ends.items()}


def encode(batch: pa.RecordBatch, partition: np.ndarray) -> bytes:
    """Returns an append's rows as bytes: those of each partition by its number.

    Args:
        partition: of each row.
    """
    return msgspec.msgpack.encode({number: to_bytes(rows) for number, rows in by_partition(batch, partition)})


def decode(data: bytes) -> pa.RecordBatch:
    """Returns what `encode` made bytes of; the rows of a partition stand together, in their order."""
    return from_bytes(unopened(data).values()).combine_chunks().to_batches()[0]


#: What `encode` made bytes of, by partition and still as bytes (log.partition_bytes).
unopened: Final = msgspec.msgpack.Decoder(dict[int, bytes]).decode
