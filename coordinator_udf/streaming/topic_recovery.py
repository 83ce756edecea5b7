"""Where a query on a topic begins, and a start from consumer_offsets on a log that is one.

As with the embedded log (recovery), the load is rows of the log: all of them in one transaction, so that a reader sees
the whole load or nothing of it. The new checkpoint is told last where in the topic to start. Requests that stand before
the load and were never answered are answered by nobody: their gateways tell clients so when their time is over, and
clients ask again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from coordinator_udf import stopping
from coordinator_udf.log.kafka.appender import KafkaLog
from coordinator_udf.log.kafka.transaction import append_all_or_none
from coordinator_udf.log.rows import control_rows
from coordinator_udf.settings.file import CoordinatorConfig
from coordinator_udf.streaming.checkpoint import is_begun
from coordinator_udf.streaming.checkpoint_files import CheckpointFiles
from coordinator_udf.streaming.recovery import (
    RecoveryError,
    Staged,
    load_row,
    load_rows,
    newest_records,
    next_seqs,
)
from coordinator_udf.streaming.sources.kafka_topic import newest_topics
from coordinator_udf.streaming.sources.requests import topics_body

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOTE: Final = "muster-topic.json"
_log: Final = logging.getLogger(__name__)


class TopicNote(msgspec.Struct, frozen=True):
    """What a checkpoint says of its topic.

    Attributes:
        id: Kafka's id of it; another topic of the same name has another.
        partitions: how many it has.
        starting: by partition, the offset at which the query begins; empty: at the oldest record.
    """

    id: str
    partitions: int
    starting: dict[int, int] = {}


def starting_offsets(
    spark: SparkSession,
    log: KafkaLog,
    tables: str,
    checkpoint: CheckpointFiles,
    config: CoordinatorConfig,
    *,
    recover: bool,
) -> Mapping[int, int]:
    """Says where a query on a checkpoint begins, which belongs to one topic from then on; loads the groups if asked.

    Raises:
        RecoveryError: the checkpoint is of another topic, or in use and the groups are to be loaded.
        BrokerError: the load can't be put on the log.
    """
    note = _read(checkpoint)
    if note is not None:
        if (note.id, note.partitions) != (log.topic_id, log.partitions):
            raise RecoveryError(
                f"the checkpoint {checkpoint.place} is of a topic with id {note.id} and {note.partitions} partitions, "
                f"but {log.place} has id {log.topic_id} and {log.partitions}: bring that topic back, or start with "
                "--recover-from-offsets and a new --checkpoint"
            )
        if recover and note.starting:
            _log.warning("the recovery that was begun on the checkpoint %s is gone on with", checkpoint.place)
            return note.starting
    if recover and (note is not None or is_begun(checkpoint)):
        raise RecoveryError(
            f"there is a checkpoint at {checkpoint.place}: start without --recover-from-offsets to go on from it, or "
            "name a new --checkpoint to load the groups from consumer_offsets"
        )
    if note is None:
        starting = _load(spark, log, tables, config) if recover else {}
        note = TopicNote(log.topic_id, log.partitions, starting)
        _write(checkpoint, note)
    return note.starting


def _load(spark: SparkSession, log: KafkaLog, tables: str, config: CoordinatorConfig) -> dict[int, int]:
    """Puts the load of all groups on the log; returns where it begins."""
    seqs = next_seqs(tables, log.partitions)
    body = topics_body(config) or newest_topics(spark, log.place)
    controls: dict[str, Any] = {"partitions": log.partitions}
    with stopping.temporary_directory("muster-recovery-") as scratch:
        records = Staged(Path(scratch) / "records", newest_records(spark, tables), load_rows)

        def load() -> Iterator[dict[str, Any]]:
            for partition, seq in enumerate(seqs):
                yield load_row(partition, {"nextSeq": seq})
            for portion in records.read():
                yield from portion.to_pylist()
            if body:
                yield from control_rows(**controls, log_ts=0, api="TopicMetadata", body=json.loads(body))
            yield from control_rows(**controls, log_ts=log.now_ms(), api="LoadEnd")

        return append_all_or_none(log.place, load())


def _read(checkpoint: CheckpointFiles) -> TopicNote | None:
    note = checkpoint.read(_NOTE)
    return None if note is None else msgspec.json.decode(note, type=TopicNote)


def _write(checkpoint: CheckpointFiles, note: TopicNote) -> None:
    # A load is on the log for good by now.
    checkpoint.write(_NOTE, msgspec.json.encode(note).decode())
