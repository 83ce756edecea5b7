"""The request log: one row a request, the only input of the coordinator (design, "The request log").

Rows of one ``partition`` are totally ordered by the dense ``offset``. Columns that a Heartbeat needs are flat; all
else of a request is in ``body``, a JSON object in Kafka's JSON field names for the request's version (bytes are
base64), so that it reads alike in Python, in SQL (``body:protocols``) and beside Kafka's own request log.
"""

from __future__ import annotations

from typing import Final, get_args, get_type_hints

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from schemas.request_row import Int, Long, Request

#: What `source` is in every row of the live coordinator.
LIVE: Final = "live"

#: What no row can be without; all other columns may be null.
NEVER_NULL: Final = ("source", "partition", "offset", "log_ts")

#: What tables of earlier releases don't have; it is null there.
ADDED_LATER: Final = frozenset({"principal"})

#: The types of the columns in Spark, by those of their fields.
_TYPES: Final = {Int: IntegerType(), Long: LongType(), str: StringType()}


def _struct() -> StructType:
    fields = {"source": str, **get_type_hints(Request, include_extras=True)}
    # Whether a column may be null is told above.
    types = {name: next((kind for kind in get_args(hint) if kind in _TYPES), hint) for name, hint in fields.items()}
    return StructType([StructField(name, _TYPES[kind], name not in NEVER_NULL) for name, kind in types.items()])


#: The columns of `Request`, and before them the coordinator that the row belongs to: "live", or in a replay the input's
#: name.
REQUEST_LOG: Final = _struct()

#: Rows that are no request: what happens to the coordinator rather than what is asked of it.
#: Tick: time passes. LoadGroup (body: one record of the offsets table, or null), LoadEnd: a cold start; requests
#: between the first LoadGroup and LoadEnd are answered as by a loading coordinator. Unload: the shard is not ours until
#: LoadEnd. TopicMetadata (body: {"topics": [{"name", "partitions", "id"}]}): the complete new list of topics.
#: Downtime (body: fromMs, untilMs, graceMs, heardWithinMs): nobody could append in between, so time stood still and
#: sessions begin anew, by graceMs longer, as clients come back only after a pause. With heardWithinMs clients stayed
#: connected: sessions end when they would have, but last so long from then on. The row itself is of the time before.
#: ExpireOffsets: expire offsets now, and in the interval from then on. EndTxn (body: producerId, producerEpoch,
#: committed): a transaction's marker. Describe (body: {"groups": [...]} or null for all): the state inside, an input
#: without effect. AdoptGroup (body: groupId, group, timers, assignments, offsets): a replay puts a group in the state
#: that the broker's answers tell, where nothing explains how it came to be in it. DelayTimers (body: groupId, untilMs):
#: what the group's timers, and the shard's own, were to do before untilMs they do then, as in a broker that comes to it
#: late. DelayRegexes (body: groupId, untilMs): what the group's next request finds out about regular expressions is
#: told to the group then, and not at once. KeepTimer (body: groupId, memberId, kind, untilMs): the timer of a member
#: that the row before puts off or disarms fires then all the same, as in a broker that does so once the row's records
#: are there.
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
    "AdoptGroup",
    "DelayTimers",
    "DelayRegexes",
    "KeepTimer",
)

#: What the request log is called as a table.
REQUEST_LOG_TABLE = "request_log"

REQUEST_COLUMNS = tuple(REQUEST_LOG.fieldNames())


def request_log_arrow() -> pa.Schema:
    """Returns the request log's schema for Arrow, column for column that of `REQUEST_LOG`."""
    return to_arrow_schema(REQUEST_LOG)
