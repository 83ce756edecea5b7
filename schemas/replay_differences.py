"""Where a replay's answers are not the recorded ones, as a table."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

REPLAY_DIFFERENCES_TABLE: Final = "replay_differences"

#: Reasons in the column ``undecided`` that mean that the replay's group was another than the broker's.
OLDER: Final = "it was there before the log began"
REBASED: Final = "it waited in a group that was then put in the state that the answers of the broker tell"

#: One row a difference. The option --differences writes them in full, with both sides.
REPLAY_DIFFERENCES = StructType(
    [
        StructField("source", StringType(), False),
        # Null where a record has no request.
        StructField("request_id", StringType(), True),
        # answer, record or describe.
        StructField("what", StringType(), False),
        StructField("api", StringType(), False),
        # The recorded error.
        StructField("error", StringType(), False),
        # Why the log itself can't tell what is right; null where it can.
        StructField("undecided", StringType(), True),
    ]
)


def replay_differences_arrow() -> pa.Schema:
    """Returns the Arrow schema of `REPLAY_DIFFERENCES`."""
    return to_arrow_schema(REPLAY_DIFFERENCES)
