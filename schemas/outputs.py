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

from schemas.tables import GROUP_TRANSITIONS, REJECTED_REQUESTS

_SAID: Final = [
    StructField("source", StringType(), False),
    StructField("partition", IntegerType(), False),
    # Dense within a partition over all kinds, in the order in which the outputs came to be.
    StructField("seq", LongType(), False),
    StructField("ts", LongType(), False),
]

#: One row an answer: to be completed (tables.assignment_join), then a row of group_responses.
RESPONSES = StructType(
    [
        *_SAID,
        # The request that is answered.
        StructField("request_id", StringType(), True),
        # The request in whose handling the answer was given; null is a timer.
        StructField("answered_by", StringType(), True),
        StructField("api", StringType(), True),
        StructField("api_version", IntegerType(), True),
        StructField("group_id", StringType(), True),
        StructField("member_id", StringType(), True),
        StructField("error_code", IntegerType(), True),
        # The answer; null where it failed and can't say so.
        StructField("body", StringType(), True),
        # As in the request: the answers of all parts make up one answer.
        StructField("parts", IntegerType(), True),
        StructField("assignment_refs", StringType(), True),
    ]
)

#: One row a record of the internal offsets topic: to be completed, then a row of consumer_offsets.
RECORDS = StructType(
    [
        *_SAID,
        # The request that caused the record; null is a timer.
        StructField("request_id", StringType(), True),
        StructField("offset", LongType(), False),
        StructField("record_type", StringType(), False),
        # The whole key in JSON, and what it is made of.
        StructField("key", StringType(), False),
        StructField("group_id", StringType(), True),
        StructField("topic", StringType(), True),
        StructField("topic_partition", IntegerType(), True),
        StructField("member_id", StringType(), True),
        StructField("value_version", IntegerType(), True),
        # Of transactional commits, and of the markers that end their transactions.
        StructField("producer_id", LongType(), True),
        StructField("producer_epoch", IntegerType(), True),
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

#: The state of one shard in Spark's state store. `hot` is what every heartbeat touches, `cold` all the rest.
SHARD_STATE = StructType(
    [
        StructField("version", IntegerType(), False),
        StructField("next_deadline", LongType(), True),
        StructField("hot", BinaryType(), True),
        StructField("cold", BinaryType(), True),
    ]
)


def outputs_arrow(kind: str) -> pa.Schema:
    """The Arrow schema of one of `KINDS`.

    Raises:
        KeyError: there is no such kind.
    """
    return to_arrow_schema(KINDS[kind])
