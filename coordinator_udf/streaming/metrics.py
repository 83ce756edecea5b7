"""What a coordinator counts, under Kafka's names where Kafka counts the same (its group-coordinator-metrics)."""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator_udf.tables.queries import literal, query
from schemas.requests import LIVE
from schemas.tables import TABLES

if TYPE_CHECKING:
    from coordinator_udf.streaming.coordinator import Coordinator

_KAFKA: Final = "kafka_server_group_coordinator_metrics"
_DEAD: Final = "Dead"
_STABLE: Final = "Stable"
#: How often the tables are measured, whoever asks.
_MEASURE_EACH_S: Final = 60.0

_LAST_STATES: Final = f"""
SELECT to_state, COUNT(*) AS groups
FROM (SELECT to_state, row_number() OVER (PARTITION BY group_id ORDER BY seq DESC) AS place
      FROM rows WHERE source = {literal(LIVE)})
WHERE place = 1 GROUP BY 1
"""


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
        self._tombstones = counter("muster_offset_tombstones", "Offsets that were deleted, or expired.")
        self._completed = counter(f"{_KAFKA}_group_completed_rebalance", "Rebalances that ended with an assignment.")
        self._expired = counter("muster_session_expirations", "Members whose sessions expired.")
        self._rules = Counter(
            "muster_transitions", "Changes of groups, by the rule that fired.", ["rule"], registry=registry
        )
        self._tables = tables.rstrip("/")
        self._states: Counts[str] = Counts()
        self._sizes: dict[str, tuple[int, int]] = {}
        self._measured = float("-inf")
        self._coordinator: Coordinator | None = None
        if DeltaTable.is_deltatable(f"{self._tables}/group_transitions"):
            for batch in query(DeltaTable(f"{self._tables}/group_transitions"), _LAST_STATES):
                found = zip(batch.column("to_state").to_pylist(), batch.column("groups").to_pylist(), strict=True)
                self._states.update({state: count for state, count in found if state != _DEAD})
        registry.register(_WhenAsked(self._collect))

    def watch(self, coordinator: Coordinator) -> None:
        """Tells of a coordinator from here on, which runs."""
        self._coordinator = coordinator

    def health(self) -> str | None:
        """What is wrong with the query; None if it runs."""
        coordinator = self._coordinator
        if coordinator is None or coordinator.query.isActive:
            return None
        return "the query has ended"

    def readiness(self) -> str | None:
        """Why clients should not come yet; None once the first micro-batch is through."""
        coordinator = self._coordinator
        if coordinator is None or not coordinator.sink.totals.sink_ms:
            return "the first micro-batch is not through"
        return self.health()

    def take(self, tables: Mapping[str, pa.Table]) -> None:
        """Counts a micro-batch that is in the tables by now."""
        records, changes = tables["consumer_offsets"], tables["group_transitions"]
        if records.num_rows:
            commits = records.filter(pc.equal(records.column("record_type"), "OffsetCommit"))
            gone = commits.column("offset_commit").null_count
            self._commits.inc(commits.num_rows - gone)
            self._tombstones.inc(gone)
        if changes.num_rows:
            columns = (changes.column(name).to_pylist() for name in ("from_state", "to_state", "rule"))
            for before, after, rule in zip(*columns, strict=True):
                self._note(before, after, rule)

    def _note(self, before: str | None, after: str, rule: str) -> None:
        self._rules.labels(rule).inc()
        if rule == "SESSION_EXPIRED":
            self._expired.inc()
        if before == after:
            return
        if before is not None:
            self._states[before] -= 1
        if after != _DEAD:
            self._states[after] += 1
        if after == _STABLE:
            self._completed.inc()

    def _collect(self) -> Iterable[Metric]:
        groups = GaugeMetricFamily(f"{_KAFKA}_group_count", "Groups by state.", labels=["state"])
        for state, count in sorted(self._states.items()):
            groups.add_metric([state], max(count, 0))
        yield groups
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
    """The number of a table's files and their bytes; None where there is no table."""
    if not DeltaTable.is_deltatable(uri):
        return None
    sizes = pa.table(DeltaTable(uri).get_add_actions()).column("size_bytes")
    return len(sizes), int(pc.sum(sizes).as_py() or 0)
