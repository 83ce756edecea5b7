"""A Kafka topic as a request log that is appended to, by any number of processes on any number of hosts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from coordinator_udf.background import BackgroundThread
from coordinator_udf.log.clock import wall_ms
from coordinator_udf.log.file import GroupConfigs, LogError
from coordinator_udf.log.kafka import client
from coordinator_udf.log.kafka.client import DELIVERY_TIMEOUT_MS, BrokerError
from coordinator_udf.log.kafka.downtime import began_rows
from coordinator_udf.log.kafka.place import KafkaPlace
from coordinator_udf.log.kafka.records import to_key, to_value
from coordinator_udf.log.kafka.topics import FoundTopic, check
from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.protocol.requests import Topic

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_log: Final = logging.getLogger(__name__)

#: How long the producer is asked for its reports at a time, in seconds; it returns with the first. As late as this a
#: stop is heard.
_POLL_S: Final = 0.1
#: How long over its time (DELIVERY_TIMEOUT_MS) a report may be late, in seconds: then the client is broken. librdkafka
#: looks for records whose time is over once a second.
_LATE_S: Final = 10.0


class NotAppendedError(BrokerError):
    """Records of some partitions may be in the log or not; all others are.

    Attributes:
        partitions: those partitions.
    """

    def __init__(self, place: KafkaPlace, errors: Mapping[int, str]) -> None:
        self.partitions = frozenset(errors)
        places: dict[str, list[str]] = {}
        for partition, error in sorted(errors.items()):
            places.setdefault(error, []).append(str(partition))
        told = "; ".join(f"{error} (partitions {', '.join(found)})" for error, found in places.items())
        super().__init__(f"{place} can't be appended to now: {told}")


class _Reports:
    """What becomes of the records of one append."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._left = count
        self.errors: dict[int, str] = {}
        self.done = threading.Event()

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Takes what became of one record."""
        self._note(message.partition() or 0, error)

    def fail(self, partition: int, error: KafkaError) -> None:
        """Takes it that a record was not sent at all."""
        self._note(partition, error)

    def _note(self, partition: int, error: KafkaError | None) -> None:
        with self._lock:
            if error is not None:
                self.errors[partition] = error.str()
            self._left -= 1
            if self._left == 0:
                self.done.set()


class KafkaLog:
    """An open topic of requests. Safe to share between threads.

    Attributes:
        place: the topic.
        partitions: how many partitions (coordinator shards) it has, for good.
        topic_id: Kafka's id of it.
    """

    #: Whether a request's rows may come in different micro-batches: each partition is read as far as it goes.
    splits_requests = True
    #: Whether it keeps the topics that clients create and the settings that they give to groups.
    keeps_changes = False

    def __init__(self, place: KafkaPlace, found: FoundTopic) -> None:
        self.place = place
        self.partitions = found.partitions
        self.topic_id = found.id
        self._producer = client.producer(place)
        self._lock = threading.Lock()
        self._has_begun = False
        self._polling = BackgroundThread(self._poll, "kafka-log")
        self._polling.start()

    @classmethod
    def open(cls, place: KafkaPlace, partitions: int | None = None) -> KafkaLog:
        """Opens the topics that ``scripts/topics`` made.

        Args:
            partitions: how many there have to be; None for any number.

        Raises:
            LogError: they aren't there, or not as they have to be, or no broker can be asked.
        """
        found = check(place)[place.topic]
        if partitions not in (None, found.partitions):
            raise LogError(
                f"--partitions is {partitions}, but the topic {place.topic} has {found.partitions}; leave it out"
            )
        return cls(place, found)

    def close(self) -> None:
        """Ends the producer; what was appended stays."""
        self._polling.stop()

    def now_ms(self) -> int:
        """Returns the wall clock, in milliseconds since the epoch. What counts is the brokers' clock."""
        return wall_ms()

    def append(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Appends rows, in order in each partition; on return they are on all replicas that are in sync.

        Their time is the broker's (LogAppendTime), save for rows whose ``log_ts`` is 0: no time passes by them.
        Before the first with a time a tick in each partition says that this appender begins.

        Args:
            rows: every column of REQUEST_LOG but ``source`` and ``offset`` (coordinator_udf.log.rows makes them).

        Returns:
            How many records were written.

        Raises:
            BadRequest: a row has no partition of this log, or is too long. Nothing is appended.
            NotAppendedError: brokers could not be reached in time.
        """
        records = [self._record(row) for row in rows]
        with self._lock:
            if not self._has_begun and any(row["log_ts"] > 0 for row in rows):
                records = [*map(self._record, began_rows(self.partitions, self.now_ms())), *records]
                self._has_begun = True
            reports = _Reports(len(records))
            for partition, value in records:
                self._produce(partition, value, reports)
        if not reports.done.wait(DELIVERY_TIMEOUT_MS / 1_000 + _LATE_S):
            raise NotAppendedError(self.place, dict.fromkeys(range(self.partitions), "no report of the producer"))
        if reports.errors:
            raise NotAppendedError(self.place, reports.errors)
        return len(records)

    def created_topics(self) -> tuple[Topic, ...]:
        """Returns no topics: they are those of the settings file, or of the cluster behind the gateway."""
        return ()

    def change_topics(
        self, expected: tuple[Topic, ...], topics: tuple[Topic, ...], rows: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Refuses to keep topics.

        Raises:
            LogError: always.
        """
        raise LogError("a log that is a Kafka topic keeps no topics of clients; name them in the settings file")

    def group_configs(self) -> GroupConfigs:
        """Returns no settings of single groups."""
        return {}

    def change_group_configs(
        self, expected: GroupConfigs, changed: GroupConfigs, rows: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Refuses to keep settings of single groups.

        Raises:
            LogError: always.
        """
        raise LogError("a log that is a Kafka topic keeps no settings of single groups; set them for all groups")

    def _record(self, row: Mapping[str, Any]) -> tuple[int, bytes]:
        partition = row["partition"]
        if not isinstance(partition, int) or not 0 <= partition < self.partitions:
            raise BadRequest("partition", partition, f"0 to {self.partitions - 1}, the partitions of {self.place}")
        value = to_value(row)
        if len(value) > client.RECORD_BYTES_MAX - 1024:
            raise BadRequest("a row of the request log", f"{len(value)} bytes", f"at most {client.RECORD_BYTES_MAX}")
        return partition, value

    def _produce(self, partition: int, value: bytes, reports: _Reports) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(
                    self.place.topic,
                    partition=partition,
                    key=to_key(partition),
                    value=value,
                    on_delivery=reports.report,
                )
            except BufferError:
                # It holds as much as it may; the other thread takes what was delivered off it.
                threading.Event().wait(_POLL_S)
            except KafkaException as raised:
                error = raised.args[0]
                if not error.fatal():
                    reports.fail(partition, error)
                    return
                # What it still had may be in the log or not; whoever waits for it is told so when its time is over.
                _log.warning("the producer of %s begins anew: %s", self.place, error.str())
                self._producer = client.producer(self.place)
            else:
                return

    def _poll(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._producer.poll(_POLL_S)
