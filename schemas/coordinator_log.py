"""The lines of the group coordinator in a broker's own log (server.log), as a table."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

COORDINATOR_LOG_TABLE: Final = "coordinator_log"

#: One row a line. What a line doesn't tell is null.
COORDINATOR_LOG = StructType(
    [
        StructField("source", StringType(), False),
        # The line's number among the lines of its log, from 0.
        StructField("seq", LongType(), False),
        StructField("ts", LongType(), False),
        StructField("broker", IntegerType(), False),
        # The partition of the offsets topic; null in lines of the older coordinator (to 3.9) and of no partition.
        StructField("partition", IntegerType(), True),
        # What the line tells (InfoEvent); null where its shape is not known.
        StructField("event", StringType(), True),
        StructField("group_id", StringType(), True),
        StructField("member_id", StringType(), True),
        StructField("old_member_id", StringType(), True),
        StructField("group_instance_id", StringType(), True),
        StructField("client_id", StringType(), True),
        StructField("client_host", StringType(), True),
        StructField("protocol", StringType(), True),
        StructField("state", StringType(), True),
        # A classic group's generation, or a consumer group's epoch.
        StructField("generation", IntegerType(), True),
        StructField("member_count", IntegerType(), True),
        StructField("assignor", StringType(), True),
        StructField("duration_ms", LongType(), True),
        StructField("reason", StringType(), True),
        StructField("client_reason", StringType(), True),
        StructField("message", StringType(), False),
    ]
)


def coordinator_log_arrow() -> pa.Schema:
    """Returns the Arrow schema of `COORDINATOR_LOG`."""
    return to_arrow_schema(COORDINATOR_LOG)
