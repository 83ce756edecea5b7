"""A coordinator without Spark behind a gateway: the real log, the real shards, the real joins, in one thread.

What the stream does with a micro-batch happens here with every append: so a gateway and its clients can be tested in
seconds. The stream itself is tested behind the gateway too, in test_live_job.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import pyarrow as pa
from prometheus_client import CollectorRegistry

from coordinator_udf.gateway.gateway import Gateway
from coordinator_udf.gateway.partition_ends import PartitionEnds
from coordinator_udf.gateway.security.load import Security
from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.gateway.upstream.watch import UpstreamCluster
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.rows import control_rows
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.settings.file import topic_id
from coordinator_udf.shard.batches import process_batch
from coordinator_udf.shard.shard import Shard
from coordinator_udf.streaming.sink import Written
from coordinator_udf.tables.assignment_join import RecordAt, brought, complete_assignments
from coordinator_udf.tables.outputs import OutputRows, Outputs
from coordinator_udf.tables.rows import to_tables

PARTITIONS = 4


def topics(**partitions: int) -> tuple[Topic, ...]:
    return tuple(Topic(name=name, partitions=count, id=topic_id(name)) for name, count in partitions.items())


class InProcessCoordinator:
    """Reads the log from its beginning, so that another one on the same log takes over where the first stopped."""

    def __init__(
        self, log: EmbeddedLog, settings: Settings, answer: Callable[[pa.Table], None], pause_s: float
    ) -> None:
        self._log = log
        self._shards = [Shard(partition, settings) for partition in range(log.partitions)]
        self._assignments: dict[RecordAt, dict[str, bytes]] = {}
        self._answer = answer
        self.ends: PartitionEnds | None = None
        self.written: Written | None = None
        self._pause_s = pause_s
        self._done = 0
        self._stop = threading.Event()
        self.failure: BaseException | None = None
        self.responses: list[pa.Table] = []
        self.rejected = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            ticked = 0.0
            while not self._stop.is_set():
                if time.monotonic() - ticked > 0.2:
                    ticked = time.monotonic()
                    rows = control_rows(partitions=self._log.partitions, log_ts=self._log.now_ms(), api="Tick")
                    self._log.append(rows)
                end = self._log.end()
                if end == self._done:
                    time.sleep(0.002)
                    continue
                time.sleep(self._pause_s)
                self._batch(end)
        except BaseException as error:  # noqa: BLE001  the test that stops it gets it
            self.failure = error

    def _batch(self, end: int) -> None:
        rows = pa.Table.from_batches(list(self._log.read(self._done, end)))
        said: list[OutputRows] = []
        for shard in self._shards:
            mine = rows.filter(pa.compute.equal(rows.column("partition"), shard.partition))
            if mine.num_rows:
                said += process_batch(shard, "live", mine.combine_chunks().to_batches()[0]).all()
        self._done = end
        outputs = Outputs.of(said)
        for at, members in brought(outputs.assignments).items():
            self._assignments.setdefault(at, {}).update(members)
        tables = to_tables(complete_assignments(outputs, self._stored))
        self.rejected += tables["rejected_requests"].num_rows
        if self.ends is not None:
            self.ends.add(tables["consumer_offsets"])
        if self.written is not None:
            self.written(tables)
        self.responses.append(tables["group_responses"])
        self._answer(tables["group_responses"])

    def _stored(self, wanted: list[RecordAt]) -> Mapping[RecordAt, Mapping[str, bytes]]:
        return {at: self._assignments[at] for at in wanted if at in self._assignments}


class Front:
    """A gateway with an in-process coordinator behind it."""

    def __init__(
        self,
        path: Path,
        known: tuple[Topic, ...],
        *,
        settings: Mapping[str, object] | None = None,
        gateway: GatewaySettings | None = None,
        pause_s: float = 0.02,
        cluster: UpstreamCluster | None = None,
        security: Security | None = None,
        metrics: CollectorRegistry | None = None,
        written: Written | None = None,
    ) -> None:
        self.log = EmbeddedLog.open(path) if path.exists() else EmbeddedLog.create(path, PARTITIONS)
        self.gateway = Gateway(
            self.log, known, gateway or GatewaySettings(port=0), cluster=cluster, security=security, metrics=metrics
        )
        kafka = {"group.initial.rebalance.delay.ms": 300, **(settings or {})}
        self.coordinator = InProcessCoordinator(self.log, Settings.from_kafka(kafka), self.gateway.answers, pause_s)
        self.coordinator.ends = self.gateway.ends
        self.coordinator.written = written

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.gateway.port}"

    def __enter__(self) -> Front:
        self.gateway.start()
        self.coordinator.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gateway.stop()
        self.coordinator.stop()
        self.log.close()
