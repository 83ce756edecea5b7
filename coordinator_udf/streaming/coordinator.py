"""The live coordinator: the query from the request log to the tables, and its life."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, assert_never

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from coordinator_udf.log.configured_topics import check_topics, keep_topics
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.history import history_uri, next_offsets
from coordinator_udf.log.kafka.appender import KafkaLog
from coordinator_udf.log.kafka.place import parse_place
from coordinator_udf.log.opening import AppendableLog
from coordinator_udf.log.rows import control_rows
from coordinator_udf.log.topics import known_topics, metadata_body
from coordinator_udf.settings.file import CoordinatorConfig
from coordinator_udf.streaming.answers_topic import AnswersTopic
from coordinator_udf.streaming.batch_size import PlannedRows
from coordinator_udf.streaming.checkpoint import committed_append, is_begun, read_start
from coordinator_udf.streaming.checkpoint_files import checkpoint_files
from coordinator_udf.streaming.durable_checkpoint import DurableCheckpoint
from coordinator_udf.streaming.folding import Folder
from coordinator_udf.streaming.lease import Lease, StartError, exclusive_checkpoint, take_over
from coordinator_udf.streaming.options import StreamOptions
from coordinator_udf.streaming.power_loss import refuse_tables_ahead, repair_after_power_loss
from coordinator_udf.streaming.recovery import recover
from coordinator_udf.streaming.shard_function import coordinate
from coordinator_udf.streaming.sink import CoordinatorSink, Rows, Written
from coordinator_udf.streaming.sources import requests as sources
from coordinator_udf.streaming.sources.kafka_topic import kafka_requests, rows_behind
from coordinator_udf.streaming.status import StatusLine
from coordinator_udf.streaming.ticker import Ticker
from coordinator_udf.streaming.topic_recovery import starting_offsets
from coordinator_udf.tables.delta import OutputTables
from coordinator_udf.tables.places import is_uri

_log: Final = logging.getLogger(__name__)

_LOUD_WHEN_STOPPED: Final = (
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    "org.apache.spark.scheduler.DAGScheduler",
)

#: How long a stop waits for the micro-batch that is under way, in seconds: usual ones take a quarter of a second, the
#: first and large ones many. What is broken off is done again by the next start.
STOP_TIMEOUT_S: Final = 120.0


class Coordinator:
    """A running query, with all that it needs beside it.

    Use as a context manager: leaving it stops the query after the micro-batch that is under way.

    Args:
        spark: made by session.coordinator_session.
        answers: is given the answers of each micro-batch once they are written.
        records: is given the records of each micro-batch once they are written, before the answers.
        written: is given the rows of each micro-batch once they are written, by table.
        clients: says at the end of the status line what is to be told of clients.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: StreamOptions,
        config: CoordinatorConfig,
        answers: Rows | None = None,
        records: Rows | None = None,
        *,
        clients: Callable[[], str] = str,
        written: Written | None = None,
    ) -> None:
        self._written = written
        self.options = options
        self.config = config
        self._spark = spark
        self._checkpoint = checkpoint_files(options.checkpoint, spark)
        self._answers = answers
        self._topic: AnswersTopic | None = None
        self._records = records
        self._clients = clients
        self._ticker: Ticker | None = None
        self._exit = ExitStack()
        self.log: AppendableLog | None = None
        self._sink: CoordinatorSink | None = None
        self._folder: Folder | None = None
        self._query: StreamingQuery | None = None
        self._lease: Lease | None = None

    def __enter__(self) -> Coordinator:
        with ExitStack() as undo:
            self._start(undo)
            self._exit = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._exit.close()

    @property
    def query(self) -> StreamingQuery:
        """The query, once it is started."""
        assert self._query is not None
        return self._query

    @property
    def sink(self) -> CoordinatorSink:
        """The sink, once the query is started."""
        assert self._sink is not None
        return self._sink

    def wait(self, stop: threading.Event) -> None:
        """Returns when the event is set, or when the query has ended (as it does with `available_now`).

        Raises:
            FencedError: another coordinator has taken the tables over.
            StreamingQueryException: the query failed.
        """
        assert self._lease is not None
        while self.query.isActive and not stop.wait(0.2):
            self._lease.raise_if_lost()
        if (failure := self.query.exception()) is not None:
            # The other one's micro-batches may be in the way before its tables are.
            self._lease.raise_if_lost(look=True)
            raise failure
        if self._folder is not None and self.options.available_now and not stop.is_set():
            # A run that takes what is there may be over before the folder's thread looks.
            self._folder.stop()
            self._folder.fold_due()

    def start_clock(self) -> None:
        """Lets time pass on the embedded log from now on; only with `clock_waits`, and once."""
        if self._ticker is not None:
            self._ticker.start()

    def stop(self) -> None:
        """Ends the query after the micro-batch that is under way; does nothing if it has ended.

        Raises:
            StreamingQueryException: that micro-batch failed.
        """
        query, sink = self.query, self.sink
        failure: StreamingQueryException | None = None
        if query.isActive:
            sink.hold()
            deadline = time.monotonic() + STOP_TIMEOUT_S
            # The batch under way is over when the next one waits at the sink, or when there is none.
            while query.isActive and not sink.is_holding and time.monotonic() < deadline:
                if not query.status["isTriggerActive"]:
                    break
                time.sleep(0.01)
            failure = None if sink.is_holding else _failure_of(query)
            # The batch that waits is given up, which Spark takes for a failure worth a page of log.
            jvm: Any = self._spark.sparkContext._jvm  # noqa: SLF001
            log4j = jvm.org.apache.logging.log4j
            for logger in _LOUD_WHEN_STOPPED:
                log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)
            sink.give_up()
            try:
                query.stop()
            except StreamingQueryException as error:
                _log.debug("the batch that waited was given up: %s", error)
        if self._ticker is not None:
            # Who comes to its end next is the gateway, which the ticker would miss.
            self._ticker.stop()
        if failure is not None:
            raise failure

    def _start(self, undo: ExitStack) -> None:
        options = self.options
        if options.durable:
            repair_after_power_loss(options.tables, options.checkpoint)
        tables = OutputTables(options.tables, is_durable=options.durable)
        undo.callback(tables.close)
        # With a checkpoint of its own a second one would load the groups from them, and both would decide.
        self._lease = undo.enter_context(take_over(tables, options.checkpoint))
        undo.enter_context(exclusive_checkpoint(options.checkpoint, self._lease))
        self._refuse_new_checkpoint_on_old_tables(tables)
        refuse_tables_ahead(tables, self._checkpoint)
        requests = self._requests(undo)
        sync = None
        if options.durable and not is_uri(options.checkpoint):
            sync = DurableCheckpoint(Path(options.checkpoint)).sync
        self._sink = CoordinatorSink(
            tables,
            self._answers,
            self._records,
            self._written,
            topic=self._topic,
            sync=sync,
            large_rows=options.large_batch_rows,
            planned=PlannedRows(self._checkpoint, self._rows_between),
        )
        outputs = coordinate(requests, self.config.settings, gaps_are_downtime=isinstance(self.log, KafkaLog))
        writer = (
            outputs.writeStream.queryName("coordinator")
            .foreachBatch(self._sink)
            .option("checkpointLocation", options.checkpoint)
        )
        if options.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            pause_ms = options.trigger_ms
            if options.source in ("delta", "json"):
                pause_ms = max(pause_ms, options.tick_ms)
            writer = writer.trigger(processingTime=f"{pause_ms} milliseconds")
        self._query = writer.start()
        status = StatusLine(self._query, self._sink.totals, self._lag, clients=self._clients)
        status.start()
        undo.callback(status.close)

    @property
    def _epoch(self) -> int:
        assert self._lease is not None
        return self._lease.epoch

    def _requests(self, undo: ExitStack) -> DataFrame:
        options = self.options
        match options.source:
            case "embedded":
                return self._embedded(undo)
            case "kafka":
                return self._kafka(undo)
            case "delta":
                read = sources.delta_requests
            case "json":
                read = sources.json_requests
            case _:
                assert_never(options.source)
        if options.recover:
            raise StartError("--recover-from-offsets puts the groups on the log; it needs --source embedded or kafka")
        partitions = options.partitions or 8
        requests = read(self._spark, options.log, partitions)
        if options.available_now:
            return requests
        return sources.with_clock(requests, partitions, self.config)

    def _kafka(self, undo: ExitStack) -> DataFrame:
        options = self.options
        self.log = log = KafkaLog.open(parse_place(options.log, options.kafka), options.partitions)
        undo.callback(log.close)
        self._topic = AnswersTopic(log.place, log.partitions)
        starting = starting_offsets(
            self._spark, log, options.tables, self._checkpoint, self.config, recover=options.recover
        )
        self._begin(log, undo)
        return kafka_requests(self._spark, log.place, log.partitions, starting=starting, max_rows=options.max_rows)

    def _begin(self, log: AppendableLog, undo: ExitStack) -> None:
        """Says which topics there are, and lets time pass."""
        options = self.options
        if not (options.delete_topics or options.of_cluster):
            check_topics(log, self.config.topics)
        # What is there is all that a run to its end handles.
        tell_topics(log, self.config, or_tick=not options.available_now)
        keep_topics(log, () if options.of_cluster else self.config.topics)
        if not options.available_now:
            self._ticker = Ticker(log, options.tick_ms)
            undo.callback(self._ticker.stop)
            if not options.clock_waits:
                self._ticker.start()

    def _embedded(self, undo: ExitStack) -> DataFrame:
        options = self.options
        path = Path(options.log)
        if path.is_file():
            log = EmbeddedLog.open(path)
        elif options.available_now:
            raise StartError(f"there is no request log at {path}; with --available-now it must be there already")
        else:
            log = EmbeddedLog.create(
                path,
                options.partitions or 8,
                clock_skew_max_ms=self.config.settings.log_clock_skew_max_ms,
                # The log before it may be lost, and what was folded of it not.
                first_offsets=next_offsets(history_uri(options.tables)) if options.fold_after_rows else (),
            )
        undo.callback(log.close)
        if options.partitions not in (None, log.partitions):
            raise StartError(
                f"--partitions is {options.partitions}, but the request log {path} was made with {log.partitions}; "
                "that number stays for good: leave --partitions out, or choose another --log"
            )
        self.log = log
        self._refuse_what_was_trimmed(log)
        if options.fold_after_rows:
            self._folder = self._make_folder(log, undo)
        if options.recover:
            now_ms = 0 if options.available_now else log.now_ms()
            recover(self._spark, log, options.tables, self._checkpoint, self.config, now_ms=now_ms)
        self._begin(log, undo)
        if self._folder is not None:
            self._folder.start()
        return sources.embedded_requests(
            self._spark, path, starting_append=self._starting_append(), max_rows=options.max_rows
        )

    def _starting_append(self) -> int:
        start = read_start(self._checkpoint)
        return start.append if start else 0

    def _make_folder(self, log: EmbeddedLog, undo: ExitStack) -> Folder:
        options = self.options
        folder = Folder(log, options.tables, self._checkpoint, options.fold_after_rows, epoch=self._epoch)
        undo.callback(folder.close)
        return folder

    def _refuse_what_was_trimmed(self, log: EmbeddedLog) -> None:
        if self.options.recover:
            return
        start = read_start(self._checkpoint)
        begins = committed_append(self._checkpoint) or (start.append if start else 0)
        first = log.extent().first
        if begins < first:
            raise StartError(
                f"a query on the checkpoint {self.options.checkpoint} goes on with append {begins} of the request log "
                f"{log.path}, which holds what came from append {first} on; the rest is in its history, the "
                "table request_log. Start with --recover-from-offsets and a new --checkpoint to load the groups from "
                "consumer_offsets; jobs/replay_requests.py handles the whole log once more, in other tables"
            )

    def _refuse_new_checkpoint_on_old_tables(self, tables: OutputTables) -> None:
        if self.options.recover or is_begun(self._checkpoint):
            return
        if tables.table("consumer_offsets").count() > 0:
            raise StartError(
                f"{self.options.tables} has the records of a coordinator, but there is no checkpoint at "
                f"{self.options.checkpoint}: "
                "the whole log would be handled and written once more. Name that coordinator's --checkpoint; if it is "
                "lost, start with --recover-from-offsets; or choose other --tables"
            )

    def lag_rows(self) -> int | None:
        """Returns how many rows of the log no micro-batch that has ended had; None where that isn't known."""
        progress = self.query.lastProgress
        return None if progress is None else self._rows_behind(progress)

    def _rows_behind(self, progress: Any) -> int | None:
        ends: Sequence[str | None] = [source.endOffset for source in progress.sources]
        if self.log is None or not ends or ends[0] is None:
            return None
        if isinstance(self.log, KafkaLog):
            return rows_behind(ends[0], progress.sources[0].latestOffset)
        return self.log.extent().rows - self.log.rows_until(json.loads(ends[0])["append"])

    def _rows_between(self, start: str | None, end: str) -> int | None:
        """Returns how many rows of the log lie between two offsets of its source; None where that isn't known."""
        if isinstance(self.log, KafkaLog):
            return None if start is None else rows_behind(start, end)
        if self.log is None:
            return None
        begins = json.loads(start)["append"] if start is not None else self._starting_append()
        return self.log.rows_until(json.loads(end)["append"]) - self.log.rows_until(begins)

    def _lag(self, progress: Any) -> str:
        behind = self._rows_behind(progress)
        if behind is None:
            return "unknown"
        trouble = self._folder.trouble if self._folder is not None else None
        lag = f"{behind:,} rows"
        return lag if trouble is None else f"{lag}, the request log is not folded ({trouble})"


def tell_topics(log: AppendableLog, config: CoordinatorConfig, *, or_tick: bool) -> None:
    """Puts the topics on the log, those of a settings file and those that clients created; no time passes by that.

    Args:
        or_tick: whether to append a tick where there are no topics, so that a first micro-batch has something to do.
    """
    topics = known_topics(config.topics, log.created_topics())
    if topics or or_tick:
        api, body = ("TopicMetadata", metadata_body(topics)) if topics else ("Tick", None)
        log.append(control_rows(partitions=log.partitions, log_ts=0, api=api, body=body))


def _failure_of(query: StreamingQuery) -> StreamingQueryException | None:
    """Returns why a query ended by itself, if it did."""
    return None if query.isActive else query.exception()
