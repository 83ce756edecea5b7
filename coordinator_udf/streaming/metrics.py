"""What a coordinator counts, under Kafka's names where Kafka counts the same (its group-coordinator-metrics)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent
from coordinator_udf.streaming.group_counts import GroupCounts
from schemas.tables import TABLES

if TYPE_CHECKING:
    from coordinator_udf.streaming.coordinator import Coordinator

_KAFKA: Final = "kafka_server_group_coordinator_metrics"
_NUM_OFFSETS: Final = "kafka_coordinator_group_groupmetadatamanager_numoffsets"
_COMPLETING: Final = ClassicGroupState.COMPLETING_REBALANCE
_STABLE: Final = ClassicGroupState.STABLE
#: How often the tables are measured, whoever asks, in seconds: it lists their files. Prometheus asks each minute by
#: default.
_MEASURE_EACH_S: Final = 60.0


class CoordinatorMetrics:
    """Counts what micro-batches decided, and tells of the query when it is asked.

    Args:
        registry: where the metrics are registered.
        tables: the folder of the coordinator's tables; of those that are there it is read how many groups there are.
    """

    def __init__(self, registry: CollectorRegistry, tables: str) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, registry=registry)

        self._commits = counter(f"{_KAFKA}_offset_commit", "Offsets that were committed.")
        self._expirations = counter(
            f"{_KAFKA}_offset_expiration", "Offsets that no request ended: retention was over, or the topic is gone."
        )
        self._deletions = counter(f"{_KAFKA}_offset_deletion", "Offsets that OffsetDelete removed.")
        self._tombstones = counter("muster_offset_tombstones", "Offsets that ended, for whatever reason.")
        self._completed = counter(
            f"{_KAFKA}_group_completed_rebalance", "Rebalances of classic groups that ended with an assignment."
        )
        self._rebalances = counter(f"{_KAFKA}_consumer_group_rebalance", "New epochs of consumer groups.")
        self._expired = counter("muster_session_expirations", "Members whose sessions expired.")
        self._rules = Counter(
            "muster_transitions", "Changes of groups, by the rule that fired.", ["rule"], registry=registry
        )
        self._tables = tables.rstrip("/")
        self._counts = GroupCounts()
        self._sizes: dict[str, tuple[int, int]] = {}
        self._measured = float("-inf")
        self._coordinator: Coordinator | None = None
        self._counts.load(self._tables)
        registry.register(_WhenAsked(self._collect))

    def watch(self, coordinator: Coordinator) -> None:
        """Tells of a coordinator from here on, which runs."""
        self._coordinator = coordinator

    def health(self) -> str | None:
        """Returns what is wrong with the query; None if it runs."""
        coordinator = self._coordinator
        if coordinator is None or coordinator.query.isActive:
            return None
        return "the query has ended"

    def readiness(self) -> str | None:
        """Returns why clients should not come yet; None once the first micro-batch is through."""
        coordinator = self._coordinator
        if coordinator is None or not coordinator.sink.totals.sink_ms:
            return "the first micro-batch is not through"
        return self.health()

    def take(self, tables: Mapping[str, pa.Table]) -> None:
        """Counts a micro-batch that is in the tables by now."""
        happened = self._counts.take(tables)
        self._commits.inc(happened.committed)
        self._expirations.inc(happened.expired)
        self._deletions.inc(happened.deleted)
        self._tombstones.inc(happened.gone)
        self._rebalances.inc(happened.rebalances)
        changes = tables["group_transitions"]
        if changes.num_rows:
            self._rules_of(changes)

    def _rules_of(self, changes: pa.Table) -> None:
        columns = (changes.column(name).to_pylist() for name in ("from_state", "to_state", "rule"))
        for before, after, rule in zip(*columns, strict=True):
            self._rules.labels(rule).inc()
            self._expired.inc(rule == GroupEvent.SESSION_EXPIRED)
            self._completed.inc(before == _COMPLETING and after == _STABLE)

    def _collect(self) -> Iterable[Metric]:
        groups = GaugeMetricFamily(
            f"{_KAFKA}_group_count", "Groups by protocol and state.", labels=["protocol", "state"]
        )
        for kind, count in sorted(self._counts.groups().items()):
            groups.add_metric(kind, count)
        yield groups
        yield GaugeMetricFamily(_NUM_OFFSETS, "Offsets that are committed.", self._counts.offsets)
        yield from self._of_tables()
        coordinator = self._coordinator
        if coordinator is None:
            return
        totals = coordinator.sink.totals
        yield CounterMetricFamily("muster_requests", "Requests that were handled.", totals.requests)
        yield CounterMetricFamily("muster_answers", "Answers that were given.", totals.answers)
        yield CounterMetricFamily("muster_rejected", "Rows that were not understood.", totals.rejected)
        lag = coordinator.lag_rows()
        if lag is not None:
            yield GaugeMetricFamily(f"{_KAFKA}_event_queue_size", "Rows of the request log that wait.", lag)
        progress = coordinator.query.lastProgress
        if progress is None:
            return
        phases = GaugeMetricFamily("muster_batch_seconds", "The last micro-batch, by phase.", labels=["phase"])
        for phase, took_ms in progress.durationMs.items():
            phases.add_metric([phase], took_ms / 1_000)
        yield phases
        used = sum(operator.memoryUsedBytes for operator in progress.stateOperators)
        yield GaugeMetricFamily("muster_state_bytes", "Memory of Spark's state store.", used)

    def _of_tables(self) -> Iterable[Metric]:
        now = time.monotonic()
        if now - self._measured > _MEASURE_EACH_S:
            self._measured = now
            self._sizes = {name: size for name in TABLES if (size := _size(f"{self._tables}/{name}")) is not None}
        sizes = GaugeMetricFamily("muster_table_bytes", "The data of a table.", labels=["table"])
        files = GaugeMetricFamily("muster_table_files", "The data files of a table.", labels=["table"])
        for name, (files_now, bytes_now) in self._sizes.items():
            sizes.add_metric([name], bytes_now)
            files.add_metric([name], files_now)
        yield sizes
        yield files


class _WhenAsked(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        """Returns the metrics of now."""
        return self._collect()


def _size(uri: str) -> tuple[int, int] | None:
    """Returns the number of a table's files and their bytes; None where there is no table."""
    if not DeltaTable.is_deltatable(uri):
        return None
    sizes = pa.table(DeltaTable(uri).get_add_actions()).column("size_bytes")
    return len(sizes), int(pc.sum(sizes).as_py() or 0)
