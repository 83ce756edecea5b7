"""The request log: one row a request, the only input of the coordinator (design, "The request log").

Rows of one ``partition`` are totally ordered by the dense ``offset``. Columns that a Heartbeat needs are flat; all
else of a request is in ``body``, a JSON object in Kafka's JSON field names for the request's version (bytes are
base64), so that it reads alike in Python, in SQL (``body:protocols``) and beside Kafka's own request log.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

#: What `source` is in every row of the live coordinator.
LIVE: Final = "live"

REQUEST_LOG = StructType(
    [
        # Which coordinator the row belongs to: "live", or in a replay the input's name.
        StructField("source", StringType(), False),
        StructField("partition", IntegerType(), False),
        StructField("offset", LongType(), False),
        # Milliseconds since the epoch at which the row was appended. The only clock there is.
        StructField("log_ts", LongType(), False),
        # Unique within a source: how the answer finds its way back.
        StructField("request_id", StringType(), True),
        # Kafka's API name (JoinGroup, Heartbeat, ...) or the name of a control row (see CONTROL_APIS).
        StructField("api", StringType(), True),
        StructField("api_version", IntegerType(), True),
        StructField("group_id", StringType(), True),
        StructField("member_id", StringType(), True),
        StructField("generation_or_epoch", IntegerType(), True),
        StructField("group_instance_id", StringType(), True),
        StructField("client_id", StringType(), True),
        StructField("client_host", StringType(), True),
        # The id that a new member will get if this request creates one. Proposed by whoever appends the row.
        StructField("proposed_member_id", StringType(), True),
        # In a replay: what the original coordinator chose where Kafka leaves it to the order of a hash map.
        StructField("recorded_leader", StringType(), True),
        StructField("recorded_protocol", StringType(), True),
        # How many rows of the log make up this request (one a shard asked); null and 1 mean one.
        StructField("parts", IntegerType(), True),
        StructField("body", StringType(), True),
    ]
)

#: Rows that are no request: what happens to the coordinator rather than what is asked of it.
#: Tick: time passes. LoadGroup (body: one record of the offsets table, or null), LoadEnd: a cold start; requests
#: between the first LoadGroup and LoadEnd are answered as by a loading coordinator. Unload: the shard is not ours until
#: LoadEnd. TopicMetadata (body: {"topics": [{"name", "partitions", "id"}]}): the complete new list of topics.
#: Downtime (body: fromMs, untilMs): nobody could append in between, so time stood still and sessions begin anew; the
#: row itself is of the time before.
#: ExpireOffsets: expire offsets now, whatever the interval says. EndTxn (body: producerId, producerEpoch, committed):
#: a transaction's marker. Describe (body: {"groups": [...]} or null for all): the state inside, an input without
#: effect.
CONTROL_APIS = (
    "Tick",
    "LoadGroup",
    "LoadEnd",
    "Unload",
    "TopicMetadata",
    "Downtime",
    "ExpireOffsets",
    "EndTxn",
    "Failover",
    "GroupConfig",
    "Describe",
)

#: What the request log is called as a table.
REQUEST_LOG_TABLE = "request_log"

REQUEST_COLUMNS = tuple(REQUEST_LOG.fieldNames())


def request_log_arrow() -> pa.Schema:
    """The request log's schema for Arrow, column for column that of `REQUEST_LOG`."""
    return to_arrow_schema(REQUEST_LOG)
