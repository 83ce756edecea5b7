"""Where the live coordinator reads and writes, and how it goes about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coordinator_udf.log.kafka.security import PLAINTEXT, KafkaSecurity
from coordinator_udf.streaming.folding import DEFAULT_FOLD_AFTER_ROWS
from coordinator_udf.streaming.sink import DEFAULT_LARGE_BATCH_ROWS
from coordinator_udf.streaming.sources.embedded import DEFAULT_MAX_ROWS


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Where the coordinator reads and writes, and how it goes about it.

    Attributes:
        log: the embedded log's file, a Kafka topic, a Delta table, or a directory of JSON lines.
        tables: the folder of the tables.
        checkpoint: the query's checkpoint, a directory.
        source: what kind of log it is.
        partitions: the log's number of partitions; None: as the embedded log says, else 8.
        available_now: take what is there and stop. Time stands still then: no ticks.
        trigger_ms: the least time from one micro-batch to the next.
        tick_ms: how often the job makes time pass. A log without ticks of its own has a micro-batch as often, no more.
        max_rows: the most rows of the log in one micro-batch.
        recover: load the groups from consumer_offsets and begin a new checkpoint with that.
        delete_topics: whether topics go, with their committed offsets, that the settings file no longer names.
        of_cluster: whether the topics are those of a cluster behind the gateway, and no settings file's.
        clock_waits: whether time stands still until `Coordinator.start_clock`, as nobody can append before.
        fold_after_rows: how many rows that the query needs no more stay in the embedded log before they are moved to
            the table request_log; 0: they stay for good.
        kafka: how the brokers of a topic are spoken to.
        large_batch_rows: from how many rows of the log in a micro-batch on executors write its tables, and the driver
            only commits; 0: never.
        durable: whether all that an answer stands on is on the disk before it is given; what has a URI is as durable
            as its storage makes it, at any rate.
    """

    log: str
    tables: str
    checkpoint: str
    source: Literal["embedded", "kafka", "delta", "json"] = "embedded"
    partitions: int | None = None
    available_now: bool = False
    trigger_ms: int = 0
    tick_ms: int = 500
    max_rows: int = DEFAULT_MAX_ROWS
    recover: bool = False
    delete_topics: bool = False
    of_cluster: bool = False
    clock_waits: bool = False
    fold_after_rows: int = DEFAULT_FOLD_AFTER_ROWS
    large_batch_rows: int = DEFAULT_LARGE_BATCH_ROWS
    kafka: KafkaSecurity = PLAINTEXT
    durable: bool = True
