"""What a shard says, by kinds: answers, records, assignments, transitions and rejected rows, each with its own columns.

``body`` is JSON. An assignment in a body is not bytes but a placeholder string ``"@<record offset>/<member id>"``: it
names the member's assignment in the GroupMetadata record at that offset of consumer_offsets (same source and
partition). ``assignment_refs`` lists the record offsets that a row's placeholders need, comma-separated. Rows of
ASSIGNMENTS bring the bytes.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from schemas.tables import CONSUMER_OFFSETS, GROUP_RESPONSES, GROUP_TRANSITIONS, REJECTED_REQUESTS


def _columns(table: StructType, *names: str) -> list[StructField]:
    """Returns columns that stand in a table as shards say them."""
    return [table[name] for name in names]


#: ``seq`` is dense within a partition over all kinds, in the order in which the outputs came to be.
_SAID: Final = _columns(GROUP_RESPONSES, "source", "partition", "seq", "ts")

#: One row an answer: to be completed (tables.assignment_join), then a row of group_responses.
RESPONSES = StructType(
    [
        *_SAID,
        # Of the request that is answered, and of that in whose handling it was, which is null for a timer.
        *_columns(GROUP_RESPONSES, "request_id", "answered_by", "api", "api_version", "group_id", "member_id"),
        # The answer; null where it failed and can't say so.
        *_columns(GROUP_RESPONSES, "error_code", "body"),
        # As in the request: the answers of all parts make up one answer.
        StructField("parts", IntegerType(), True),
        StructField("assignment_refs", StringType(), True),
    ]
)

#: One row a record of the internal offsets topic: to be completed, then a row of consumer_offsets.
RECORDS = StructType(
    [
        *_SAID,
        *_columns(CONSUMER_OFFSETS, "request_id", "offset", "record_type"),
        # The whole key in JSON, and what it is made of.
        *_columns(CONSUMER_OFFSETS, "key", "group_id", "topic", "topic_partition", "member_id", "value_version"),
        # Of transactional commits, and of the markers that end their transactions.
        *_columns(CONSUMER_OFFSETS, "producer_id", "producer_epoch"),
        # The value; null is a tombstone.
        StructField("body", StringType(), True),
        StructField("assignment_refs", StringType(), True),
    ]
)

#: One row a member's assignment in a GroupMetadata record, which has a placeholder for it. No table's rows.
ASSIGNMENTS = StructType(
    [
        *_SAID,
        StructField("request_id", StringType(), True),
        StructField("group_id", StringType(), True),
        StructField("member_id", StringType(), False),
        StructField("record_offset", LongType(), False),
        StructField("payload", BinaryType(), False),
    ]
)

#: The kinds by their names. Transitions and rejected rows are rows of their tables from the start.
KINDS: Final[dict[str, StructType]] = {
    "responses": RESPONSES,
    "records": RECORDS,
    "assignments": ASSIGNMENTS,
    "transitions": GROUP_TRANSITIONS,
    "rejected": REJECTED_REQUESTS,
}

#: The state of one shard in Spark's state store. `hot` is what every heartbeat touches, `cold` all the rest; both are
#: bytes in base64, for Spark takes long to hand bytes to Python (coordinator_udf.streaming.stored_state).
SHARD_STATE = StructType(
    [
        StructField("version", IntegerType(), False),
        StructField("next_deadline", LongType(), True),
        StructField("hot", StringType(), True),
        StructField("cold", StringType(), True),
    ]
)


def outputs_arrow(kind: str) -> pa.Schema:
    """Returns the Arrow schema of one of `KINDS`.

    Raises:
        KeyError: there is no such kind.
    """
    return to_arrow_schema(KINDS[kind])
