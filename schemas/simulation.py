"""The tables that only a simulation writes, beside those of a coordinator."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

MEMBER_EVENTS_TABLE: Final = "member_events"
VIOLATIONS_TABLE: Final = "violations"

#: ``source`` is the scenario and the seed.
_WHERE_AND_WHEN: Final = (
    StructField("source", StringType()),
    StructField("seq", LongType()),
    StructField("ts", TimestampType()),
    StructField("group_id", StringType()),
)

#: What members' applications did and were told: callbacks, what they own, starts and ends. ``run`` counts the processes
#: of a client id from 1.
MEMBER_EVENTS: Final = StructType(
    [
        *_WHERE_AND_WHEN,
        StructField("client_id", StringType()),
        StructField("run", IntegerType()),
        StructField("event", StringType()),
        StructField(
            "partitions",
            ArrayType(StructType([StructField("topic", StringType()), StructField("partition", IntegerType())])),
        ),
        StructField("detail", StringType()),
    ]
)

#: What must not be in a world and was.
VIOLATIONS: Final = StructType(
    [
        *_WHERE_AND_WHEN,
        StructField("kind", StringType()),
        StructField("detail", StringType()),
    ]
)


def member_events_arrow() -> pa.Schema:
    """Returns the Arrow schema of `MEMBER_EVENTS`."""
    return to_arrow_schema(MEMBER_EVENTS, timezone="UTC")


def violations_arrow() -> pa.Schema:
    """Returns the Arrow schema of `VIOLATIONS`."""
    return to_arrow_schema(VIOLATIONS, timezone="UTC")
