"""Which groups and offsets there are, by what micro-batches wrote: Kafka's GroupCoordinatorMetrics counts the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from deltalake import DeltaTable

from coordinator_udf.groups.model.classic_states import GroupEvent
from coordinator_udf.groups.records.classic import GROUP_METADATA, OFFSET_COMMIT
from coordinator_udf.groups.records.consumer import GROUP_EPOCH
from coordinator_udf.tables.queries import literal, query
from schemas.requests import LIVE

#: Kafka's names of the kinds of groups (Group.GroupType).
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"

_PROTOCOLS: Final = {GROUP_METADATA: CLASSIC, GROUP_EPOCH: CONSUMER}
_DEAD: Final = "Dead"

#: Where Kafka's GroupMetadataManager counts a new epoch as a rebalance: members that come or change, topics and regular
#: expressions. Where a member is removed (consumerGroupFenceMembers) it counts none.
_REBALANCES: Final = frozenset(
    (
        GroupEvent.MEMBER_ADDED,
        GroupEvent.MEMBER_UPDATED,
        GroupEvent.STATIC_MEMBER_REPLACED,
        GroupEvent.TOPICS_CHANGED,
        GroupEvent.REGEX_RESOLVED,
    )
)

_LAST_STATES: Final = f"""
SELECT group_id, to_state FROM (
  SELECT group_id, to_state, row_number() OVER (PARTITION BY group_id ORDER BY seq DESC) AS place
  FROM rows WHERE source = {literal(LIVE)})
WHERE place = 1
"""

_LAST_PROTOCOLS: Final = f"""
SELECT group_id, record_type FROM (
  SELECT group_id, record_type, row_number() OVER (PARTITION BY group_id ORDER BY "offset" DESC) AS place
  FROM rows WHERE source = {literal(LIVE)} AND value_version IS NOT NULL
    AND record_type IN ({", ".join(map(literal, _PROTOCOLS))}))
WHERE place = 1
"""

_LAST_OFFSETS: Final = f"""
SELECT "key" FROM (
  SELECT "key", value_version, row_number() OVER (PARTITION BY "key" ORDER BY "offset" DESC) AS place
  FROM rows WHERE source = {literal(LIVE)} AND record_type = {literal(OFFSET_COMMIT)})
WHERE place = 1 AND value_version IS NOT NULL
"""


class BatchCounts(NamedTuple):
    """What a micro-batch did.

    Attributes:
        committed: offsets that were committed.
        expired: offsets that no request ended: their retention was over, or their topic is gone.
        deleted: offsets that OffsetDelete removed.
        gone: offsets that ended, for these reasons and all others.
        rebalances: new epochs of consumer groups that Kafka counts as rebalances.
    """

    committed: int
    expired: int
    deleted: int
    gone: int
    rebalances: int


class GroupCounts:
    """Knows each group's state and protocol, and which offsets are committed: 8 bytes of a hash of each.

    What it takes a second time, as after a restart, changes nothing.
    """

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._protocols: dict[str, str] = {}
        self._offsets: set[int] = set()

    def load(self, tables: str) -> None:
        """Reads what tables say that are there already."""
        if DeltaTable.is_deltatable(f"{tables}/group_transitions"):
            rows = _pairs(f"{tables}/group_transitions", _LAST_STATES)
            self._states = {group: state for group, state in rows if state != _DEAD}
        if DeltaTable.is_deltatable(f"{tables}/consumer_offsets"):
            self._protocols = {
                group: _PROTOCOLS[kind]
                for group, kind in _pairs(f"{tables}/consumer_offsets", _LAST_PROTOCOLS)
                if group in self._states
            }
            for batch in query(DeltaTable(f"{tables}/consumer_offsets"), _LAST_OFFSETS):
                self._offsets.update(map(_hash, batch.column(0).to_pylist()))

    def take(self, tables: Mapping[str, pa.Table]) -> BatchCounts:
        """Takes over a micro-batch that is in the tables by now."""
        changes, records = tables["group_transitions"], tables["consumer_offsets"]
        for group_id, state in _rows(changes, "group_id", "to_state"):
            if state == _DEAD:
                self._states.pop(group_id, None)
                self._protocols.pop(group_id, None)
            else:
                self._states[group_id] = state
        self._note_protocols(records)
        return self._note_offsets(records, tables["group_responses"])._replace(rebalances=_rebalances(records, changes))

    def groups(self) -> Counter[tuple[str, str]]:
        """Returns the number of groups by protocol and state."""
        # Another thread may take a batch meanwhile.
        return Counter((self._protocols.get(group, CLASSIC), state) for group, state in list(self._states.items()))

    @property
    def offsets(self) -> int:
        """The number of partitions for which groups have an offset."""
        return len(self._offsets)

    def _note_protocols(self, records: pa.Table) -> None:
        kinds = pc.is_in(records.column("record_type"), value_set=pa.array(list(_PROTOCOLS)))
        told = records.filter(pc.and_(kinds, pc.is_valid(records.column("value_version"))))
        for group_id, kind in _rows(told, "group_id", "record_type"):
            if group_id in self._states:
                self._protocols[group_id] = _PROTOCOLS[kind]

    def _note_offsets(self, records: pa.Table, responses: pa.Table) -> BatchCounts:
        commits = records.filter(pc.equal(records.column("record_type"), OFFSET_COMMIT))
        if not commits.num_rows:
            return BatchCounts(0, 0, 0, 0, 0)
        by_delete = set(
            responses.filter(pc.equal(responses.column("api"), "OffsetDelete")).column("request_id").to_pylist()
        )
        committed = expired = deleted = gone = 0
        for key, version, request_id in _rows(commits, "key", "value_version", "request_id"):
            if version is not None:
                committed += 1
                self._offsets.add(_hash(key))
                continue
            gone += 1
            # The look for offsets whose retention is over, or a topic that is gone: their records are the same.
            expired += request_id is None
            deleted += request_id in by_delete
            self._offsets.discard(_hash(key))
        return BatchCounts(committed, expired, deleted, gone, 0)


def _rebalances(records: pa.Table, changes: pa.Table) -> int:
    epochs = records.filter(
        pc.and_(pc.equal(records.column("record_type"), GROUP_EPOCH), pc.is_valid(records.column("other_value")))
    )
    if not epochs.num_rows:
        return 0
    why: dict[tuple[str, int], str] = {}
    for group_id, epoch, rule in _rows(changes, "group_id", "generation", "rule"):
        why.setdefault((group_id, epoch), rule)
    return sum(
        why.get((group_id, msgspec.json.decode(value)["epoch"])) in _REBALANCES
        for group_id, value in _rows(epochs, "group_id", "other_value")
    )


def _rows(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


def _pairs(uri: str, sql: str) -> Iterator[tuple[str, str]]:
    for batch in query(DeltaTable(uri), sql):
        yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)


def _hash(key: str) -> int:
    return xxhash.xxh64_intdigest(key.encode())
