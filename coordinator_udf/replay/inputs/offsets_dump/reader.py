"""Reads dumps of ``__consumer_offsets``: their records, and what these tell of their groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from deltalake import DeltaTable

from coordinator_udf.offsets_topic.records import END_TXN_MARKER
from coordinator_udf.offsets_topic.rows import from_columns
from coordinator_udf.protocol.partitioner import DEFAULT_PARTITIONS, partition_for
from coordinator_udf.replay.inputs.found import expand
from coordinator_udf.replay.inputs.offsets_dump.lines import read_records
from coordinator_udf.replay.inputs.offsets_dump.transitions import transitions
from coordinator_udf.replay.recording import Rejection
from coordinator_udf.tables.places import is_directory
from coordinator_udf.tables.queries import query
from coordinator_udf.user_errors import InputError
from schemas.tables import CONSUMER_OFFSETS

Row = dict[str, Any]
_TABLE = "consumer_offsets"
#: The most partitions that are tried for the topic: four times Kafka's default of 50 (offsets.topic.num.partitions).
#: Each is one more hash of each group's name.
_MOST_PARTITIONS = 200


class OffsetsDump(NamedTuple):
    """What dumps tell.

    Attributes:
        rows: of consumer_offsets, in the order of partition and offset.
        transitions: rows of group_transitions, all columns but source.
        rejections: what can't be read.
    """

    rows: list[Row]
    transitions: list[Row]
    rejections: list[Rejection]

    @property
    def record_types(self) -> Counter[str]:
        """How many records there are of each type."""
        return Counter(row["record_type"] for row in self.rows)


def read_dumps(paths: Sequence[Path], source: str) -> OffsetsDump:
    """Reads the dumps of one cluster's topic; a record that stands in two of them counts once.

    Raises:
        InputError: one can't be opened.
    """
    found: dict[tuple[int, int], Row] = {}
    rejections: list[Rejection] = []
    following: dict[int, int] = {}
    for path in paths:
        # A console consumer's records don't say where they stand: those of each file follow those of the one before.
        for each in read_records(path, source, following):
            if isinstance(each, Rejection):
                rejections.append(each)
            else:
                found.setdefault((each["partition"], each["offset"]), each)
                following[each["partition"]] = max(each["offset"] + 1, following.get(each["partition"], 0))
    rows = [found[place] for place in sorted(found)]
    return OffsetsDump(rows, list(transitions(rows)), rejections)


def read_state(paths: Sequence[Path]) -> list[Row]:
    """Returns the records of dumps, or of the table consumer_offsets in a folder, as a replay may begin with them.

    Raises:
        InputError: one can't be read, or they hold no records, or those of several coordinators.
    """
    dumps = state_dumps(paths)
    rows = read_dumps(dumps, dumps[0].name).rows if dumps else _of_tables(paths[0])
    if not rows:
        named = ", ".join(map(str, paths))
        raise InputError(f"{named} holds no records of __consumer_offsets for --state to begin with")
    return rows


def state_dumps(paths: Sequence[Path]) -> list[Path]:
    """Returns the dumps of one topic to begin with, those in directories too; none where it is a folder of tables.

    Raises:
        InputError: there is nothing, it can't be read, or tables are named beside others.
    """
    tables = [path for path in paths if DeltaTable.is_deltatable(str(_table_in(path)))]
    if tables and len(paths) > 1:
        raise InputError(f"{tables[0]} holds tables; --state takes one folder of tables, or dumps")
    if tables:
        return []
    try:
        found = expand(paths)
    except InputError as error:
        needed = f"--state needs dumps of __consumer_offsets, or a folder with the table {_TABLE}"
        raise InputError(f"{error}; {needed}") from error
    for failure in found.failures.values():
        raise InputError(f"{failure}; --state needs all that it names")
    return found.paths


def _table_in(folder: Path) -> Path:
    return folder / "tables" / _TABLE if is_directory(folder / "tables") else folder / _TABLE


def _of_tables(folder: Path) -> list[Row]:
    # Quoted, for one of them, offset, is a word of SQL.
    names = ", ".join(f'"{name}"' for name in CONSUMER_OFFSETS.fieldNames())
    ordered = query(DeltaTable(str(_table_in(folder))), f'SELECT {names} FROM rows ORDER BY partition, "offset"')
    rows = [row for batch in ordered for row in batch.to_pylist()]
    sources = {row["source"] for row in rows}
    if len(sources) > 1:
        raise InputError(f"{folder} has records of {', '.join(sorted(sources))}; --state needs those of one")
    return rows


def entries_before(rows: Iterable[Row], until_ms: int) -> list[dict[str, Any]]:
    """Makes the bodies of LoadGroup rows for what the topic held at a moment: the newest record of each key.

    Commits of transactions that were still open then keep their producer.

    Args:
        rows: in the order of partition and offset.
    """
    found = []
    for row in held_after(row for row in rows if row["ts"] < until_ms):
        record = from_columns(row)
        entry = {"key": record.key, "valueVersion": record.value_version, "value": record.value, "stated": True}
        found.append({**entry, "producerId": row["producer_id"]})
    return found


def held_after(rows: Iterable[Row]) -> list[Row]:
    """Returns the records that count after some, in their order (OffsetMetadataManager.replay).

    Args:
        rows: in the order of partition and offset.
    """
    newest: dict[str, Row] = {}
    open_commits: dict[int, dict[str, Row]] = {}
    for row in rows:
        producer, key = row["producer_id"], row["key"]
        if row["record_type"] == END_TXN_MARKER:
            ended = open_commits.pop(producer, {})
            if row["other_value"] is not None and msgspec.json.decode(row["other_value"])["committed"]:
                _commit(newest, ended)
        elif producer is not None and row["record_type"] == "OffsetCommit":
            open_commits.setdefault(producer, {})[key] = row
        else:
            newest[key] = row
            if row["value_version"] is None:
                # A tombstone ends what was open before it, too.
                for commits in open_commits.values():
                    commits.pop(key, None)
    counting = [row for row in newest.values() if row["value_version"] is not None]
    counting += [row for commits in open_commits.values() for row in commits.values()]
    return sorted(counting, key=lambda row: (row["partition"], row["offset"]))


def _commit(newest: dict[str, Row], commits: Mapping[str, Row]) -> None:
    """Lets the commits of a transaction count; their own order does, not that of the markers."""
    for key, commit in commits.items():
        if key not in newest or newest[key]["offset"] < commit["offset"]:
            newest[key] = {**commit, "producer_id": None, "producer_epoch": None}


def partitions_of(rows: Iterable[Row]) -> int | None:
    """Returns how many partitions the topic has, as the places of its groups tell; None where they don't."""
    places = {(row["group_id"], row["partition"]) for row in rows if row["group_id"] is not None}
    if not places:
        return None
    least = max(partition for _, partition in places) + 1
    # Few groups fit many numbers: the usual one is the likeliest then.
    return next(
        (
            count
            for count in (DEFAULT_PARTITIONS, *range(least, _MOST_PARTITIONS + 1))
            if all(partition_for(group_id, count) == partition for group_id, partition in places)
        ),
        None,
    )
