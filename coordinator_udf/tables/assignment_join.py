"""Joins assignments back to what refers to them, and the answers of a request's parts into one.

A shard puts out assignments apart from what refers to them. Where an answer or a record has one, the shard writes the
placeholder ``"@<record offset>/<member id>"`` (schemas.outputs): the member's assignment in the GroupMetadata record at
that offset of consumer_offsets. The bytes come from the ``assignment`` rows of the same outputs or, for a record of an
earlier batch, from the table. The shard's own state keeps the bytes only of groups of the type ``consumer`` that may
still become consumer groups (`group.consumer.migration.policy`): the request that converts one has to read them at
once.

Replay and small micro-batches complete their outputs by the join in Arrow. The join of DataFrames (`assignment_frames`)
gives the same rows for outputs that lie on a cluster.
"""

from __future__ import annotations

from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_udf.protocol.answer_parts import merge_parts
from coordinator_udf.protocol.placeholders import fill_placeholders
from coordinator_udf.tables.outputs import Outputs

#: The GroupMetadata record that holds an assignment: source, partition, offset in consumer_offsets.
RecordAt = tuple[str, int, int]
#: Finds the assignments in such records, member id -> bytes; a record that isn't there is left out.
FindStored = Callable[[list[RecordAt]], Mapping[RecordAt, Mapping[str, bytes]]]


class MissingAssignmentError(LookupError):
    """An answer or a record refers to an assignment that is neither in this batch nor in consumer_offsets."""


def complete_assignments(outputs: Outputs, stored: FindStored) -> Outputs:
    """Puts the assignments in the place of their placeholders, and merges the answers of a request's parts.

    Args:
        outputs: what shards said, in one batch.
        stored: asked once, and only for the records that `outputs` itself doesn't bring.

    Returns:
        The same outputs. Placeholders are base64, ``assignment_refs`` is null.

    Raises:
        MissingAssignmentError: an assignment is nowhere to be found; names the record and the member.
    """
    referring = [_referring(outputs.responses), _referring(outputs.records)]
    if any(referring):
        known = brought(outputs.assignments)
        needed = {
            (row["source"], row["partition"], int(ref))
            for rows in referring
            for row in rows.values()
            for ref in row["assignment_refs"].split(",")
        }
        missing = sorted(needed - known.keys())
        found = {**known, **stored(missing)} if missing else known
        written_again = needed - found.keys()
        if written_again:
            found = {**found, **_written_again(outputs.records, written_again, found)}
        responses, records = (
            _fill(table, rows, found)
            for table, rows in zip((outputs.responses, outputs.records), referring, strict=True)
        )
        outputs = outputs._replace(responses=responses, records=records)
    return outputs._replace(responses=merge_answers(outputs.responses))


def _referring(table: pa.Table) -> dict[int, dict[str, Any]]:
    """Returns the rows with placeholders, by their places."""
    if table.column("assignment_refs").null_count == len(table):
        return {}
    places = pc.indices_nonzero(pc.is_valid(table.column("assignment_refs")))
    rows = table.select(["source", "partition", "assignment_refs", "body"]).take(places).to_pylist()
    return dict(zip(places.to_pylist(), rows, strict=True))


def _fill(
    table: pa.Table, rows: Mapping[int, Mapping[str, Any]], known: Mapping[RecordAt, Mapping[str, bytes]]
) -> pa.Table:
    if not rows:
        return table
    bodies = table.column("body").to_pylist()
    for place, row in rows.items():
        bodies[place] = filled(row["source"], row["partition"], row["body"], known)
    table = _replace(table, "body", pa.array(bodies, pa.string()))
    return _replace(table, "assignment_refs", pa.nulls(len(table), pa.string()))


def brought(assignments: pa.Table) -> dict[RecordAt, dict[str, bytes]]:
    """Returns the assignments that rows of ASSIGNMENTS bring, by record and member."""
    found: defaultdict[RecordAt, dict[str, bytes]] = defaultdict(dict)
    names = ("source", "partition", "record_offset", "member_id", "payload")
    columns = [assignments.column(name).to_pylist() for name in names]
    for source, partition, offset, member_id, payload in zip(*columns, strict=True):
        found[source, partition, offset][member_id] = payload
    return dict(found)


def _written_again(
    records: pa.Table, wanted: AbstractSet[RecordAt], known: Mapping[RecordAt, Mapping[str, bytes]]
) -> dict[RecordAt, dict[str, bytes]]:
    """Returns the assignments in records of this batch that name those of earlier records.

    A group is written so when a static member comes back or all members have a new assignment, and who loads it from
    there knows of no other record.
    """
    found = {}
    columns = [records.column(name).to_pylist() for name in ("source", "partition", "offset", "body")]
    for source, partition, offset, body in zip(*columns, strict=True):
        if (source, partition, offset) in wanted and body is not None:
            found[source, partition, offset] = assignments_in(filled(source, partition, body, known))
    return found


def assignments_in(body: str | None) -> dict[str, bytes]:
    """Returns the assignments in the value of a GroupMetadata record, by member."""
    members = msgspec.json.decode(body or "{}").get("members", ())
    return {member["memberId"]: b64decode(member["assignment"]) for member in members if member["assignment"]}


def filled(source: str, partition: int, body: str | None, known: Mapping[RecordAt, Mapping[str, bytes]]) -> str | None:
    """Returns a body of one shard's outputs with assignments in base64 in place of their placeholders.

    Raises:
        MissingAssignmentError: one isn't known.
    """

    def assignment(offset: int, member_id: str) -> bytes:
        record = (source, partition, offset)
        payload = known.get(record, {}).get(member_id)
        if payload is None:
            raise MissingAssignmentError(_missing(record, member_id, is_record_there=record in known))
        return payload

    return None if body is None else fill_placeholders(body, assignment)


def _missing(record: RecordAt, member_id: str, *, is_record_there: bool) -> str:
    source, partition, offset = record
    what = f"has no member {member_id!r}" if is_record_there else "is not there"
    return (
        f"an answer needs the assignment of {member_id!r} in the GroupMetadata record at offset {offset} of partition "
        f"{partition} of {source}, but in this batch and in consumer_offsets that record {what}; if consumer_offsets "
        "was changed by hand, start with --recover-from-offsets and a new checkpoint"
    )


def _replace(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), table.schema.field(name), column)


def merge_answers(responses: pa.Table) -> pa.Table:
    """Merges answers to requests that asked several shards: one row a request, at the place of its first part.

    The row has the partition and `seq` of that part and the latest `ts`. Parts of which some are not there are left as
    they are: whoever appends a request's parts appends them together, so that they come in one batch.
    """
    places = pc.indices_nonzero(pc.fill_null(pc.greater(responses.column("parts"), 1), False)).to_pylist()
    if not places:
        return responses
    names = ("source", "request_id", "partition", "parts", "api", "api_version", "error_code", "body", "ts")
    rows = responses.select(names).take(pa.array(places)).to_pylist()
    requests: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        requests[row["source"], row["request_id"]].append(i)
    values = {name: responses.column(name).to_pylist() for name in ("body", "error_code", "ts")}
    dropped = np.zeros(len(responses), dtype=bool)
    for parts in requests.values():
        parts.sort(key=lambda i: rows[i]["partition"])
        first = rows[parts[0]]
        if len(parts) != first["parts"]:
            continue
        dropped[[places[i] for i in parts[1:]]] = True
        merged = merge_parts(first["api"], first["api_version"] or 0, [rows[i]["body"] for i in parts], None)
        values["body"][places[parts[0]]] = merged
        values["error_code"][places[parts[0]]] = next(
            (rows[i]["error_code"] for i in parts if rows[i]["error_code"]), 0
        )
        values["ts"][places[parts[0]]] = max(rows[i]["ts"] for i in parts)
    for name, column in values.items():
        responses = _replace(responses, name, pa.array(column, responses.schema.field(name).type))
    return responses.filter(pa.array(~dropped))
