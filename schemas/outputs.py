"""What a shard says: one row an output, of whatever kind; the sink and the replay sort them into tables.

``body`` and ``record_key`` are JSON. An assignment in a body is not bytes but a placeholder string
``"@<record offset>/<member id>"``: it names the member's assignment in the GroupMetadata record at that offset of
consumer_offsets (same source and partition). ``assignment_refs`` lists the record offsets that a row's placeholders
need, comma-separated. Rows of kind ``assignment`` bring the bytes: ``record_offset``, ``member_id``, ``payload``.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

SHARD_OUTPUT = StructType(
    [
        # response | record | assignment | transition | rejected
        StructField("kind", StringType(), False),
        StructField("source", StringType(), False),
        StructField("partition", IntegerType(), False),
        # Dense within a partition, in the order in which the outputs came to be.
        StructField("seq", LongType(), False),
        StructField("ts", LongType(), False),
        # response, rejected: the request that is answered. record, transition, assignment: the request that caused it.
        StructField("request_id", StringType(), True),
        # response: the request in whose handling the answer was given; null is a timer.
        StructField("by", StringType(), True),
        StructField("api", StringType(), True),
        StructField("api_version", IntegerType(), True),
        StructField("group_id", StringType(), True),
        StructField("member_id", StringType(), True),
        StructField("error_code", IntegerType(), True),
        # response: the answer, null where it failed and can't say so. record: the value, null is a tombstone.
        # transition, rejected: its columns.
        StructField("body", StringType(), True),
        StructField("record_type", StringType(), True),
        StructField("record_key", StringType(), True),
        StructField("value_version", IntegerType(), True),
        StructField("record_offset", LongType(), True),
        StructField("producer_id", LongType(), True),
        StructField("producer_epoch", IntegerType(), True),
        StructField("assignment_refs", StringType(), True),
        # As in the request: the answers of all parts make up one answer.
        StructField("parts", IntegerType(), True),
        StructField("payload", BinaryType(), True),
    ]
)

OUTPUT_COLUMNS = tuple(SHARD_OUTPUT.fieldNames())

#: The state of one shard in Spark's state store. `hot` is what every heartbeat touches, `cold` all the rest.
SHARD_STATE = StructType(
    [
        StructField("version", IntegerType(), False),
        StructField("next_deadline", LongType(), True),
        StructField("hot", BinaryType(), True),
        StructField("cold", BinaryType(), True),
    ]
)


def shard_output_arrow() -> pa.Schema:
    """The outputs' schema for Arrow, column for column that of `SHARD_OUTPUT`."""
    return to_arrow_schema(SHARD_OUTPUT)
