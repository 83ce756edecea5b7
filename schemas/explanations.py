"""What a replay found out about a broker's answers that the usual order of its requests doesn't explain, as tables."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

EXPLANATIONS_TABLE: Final = "explanations"
UNEXPLAINED_TABLE: Final = "unexplained"

#: One row an answer that another order, or other times, of requests explain.
EXPLANATIONS = StructType(
    [
        StructField("source", StringType(), False),
        StructField("partition", IntegerType(), False),
        # Null of a list of all groups, of which the shard's part was made at another moment.
        StructField("group_id", StringType(), True),
        # The request whose answer differed in the usual order, its time in the log and its API.
        StructField("request_id", StringType(), False),
        StructField("ts", LongType(), False),
        StructField("api", StringType(), False),
        StructField(
            "moved",
            ArrayType(
                StructType(
                    [
                        # Null where it isn't a request that came at another place, but a timer or a shard's event.
                        StructField("request_id", StringType(), True),
                        # When the coordinator is taken to have handled it, and by how much that is later than usual.
                        StructField("ts", LongType(), False),
                        StructField("moved_ms", LongType(), False),
                    ]
                )
            ),
            False,
        ),
        # How many steps were tried. Orders with fewer changes were tried before, and none of them explained it.
        StructField("tries", LongType(), False),
    ]
)

#: One row an answer that nothing explains.
UNEXPLAINED = StructType(
    [
        StructField("source", StringType(), False),
        StructField("partition", IntegerType(), True),
        StructField("group_id", StringType(), True),
        StructField("request_id", StringType(), True),
        StructField("ts", LongType(), True),
        StructField("api", StringType(), False),
        # What the broker answered, and what it would have in the orders that were tried, the usual one first; JSON.
        StructField("recorded", StringType(), True),
        StructField("ours", ArrayType(StringType()), False),
        StructField("tries", LongType(), False),
    ]
)


def explanations_arrow() -> pa.Schema:
    """Returns the Arrow schema of `EXPLANATIONS`."""
    return to_arrow_schema(EXPLANATIONS)


def unexplained_arrow() -> pa.Schema:
    """Returns the Arrow schema of `UNEXPLAINED`."""
    return to_arrow_schema(UNEXPLAINED)
