"""The Delta tables that a coordinator leaves behind, live or in replay."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

MEMBER_METADATA = StructType(
    [
        StructField("member_id", StringType(), True),
        StructField("group_instance_id", StringType(), True),
        StructField("client_id", StringType(), True),
        StructField("client_host", StringType(), True),
        StructField("rebalance_timeout", IntegerType(), True),
        StructField("session_timeout", IntegerType(), True),
        StructField("subscription", BinaryType(), True),
        StructField("assignment", BinaryType(), True),
    ]
)

GROUP_METADATA = StructType(
    [
        StructField("protocol_type", StringType(), True),
        StructField("generation", IntegerType(), True),
        StructField("protocol", StringType(), True),
        StructField("leader", StringType(), True),
        StructField("current_state_timestamp", LongType(), True),
        StructField("members", ArrayType(MEMBER_METADATA), True),
    ]
)

OFFSET_COMMIT = StructType(
    [
        StructField("offset", LongType(), True),
        StructField("leader_epoch", IntegerType(), True),
        StructField("metadata", StringType(), True),
        StructField("commit_timestamp", LongType(), True),
        StructField("expire_timestamp", LongType(), True),
        # Kafka's url-safe base64 of the topic's uuid; null where the record carries none.
        StructField("topic_id", StringType(), True),
    ]
)

#: What a log that a record was imported from held beyond the typed columns. `key` and `value` are the bytes themselves,
#: where the typed columns encode to others (unknown tagged fields, malformed UTF-8, trailing bytes); else null.
STORED_RECORD = StructType(
    [
        StructField("batch_base", LongType(), True),
        StructField("leader_epoch", IntegerType(), True),
        # Whether the batch was transactional, where that doesn't follow from `producer_id`; else null.
        StructField("transactional", BooleanType(), True),
        StructField("key", BinaryType(), True),
        StructField("value", BinaryType(), True),
    ]
)

#: The internal offsets topic. Append-only; a tombstone has `value_version` and every value column null.
CONSUMER_OFFSETS = StructType(
    [
        StructField("source", StringType(), False),
        StructField("partition", IntegerType(), False),
        StructField("offset", LongType(), False),
        StructField("ts", LongType(), False),
        # The request that caused the record; null is a timer.
        StructField("request_id", StringType(), True),
        # Kafka's record type: OffsetCommit, GroupMetadata, ConsumerGroup..., EndTxnMarker.
        StructField("record_type", StringType(), False),
        StructField("group_id", StringType(), True),
        StructField("topic", StringType(), True),
        StructField("topic_partition", IntegerType(), True),
        StructField("member_id", StringType(), True),
        StructField("value_version", IntegerType(), True),
        StructField("group_metadata", GROUP_METADATA, True),
        StructField("offset_commit", OFFSET_COMMIT, True),
        # The value of every other record type, as Kafka's JSON.
        StructField("other_value", StringType(), True),
        StructField("producer_id", LongType(), True),
        StructField("producer_epoch", IntegerType(), True),
        # The record's key as Kafka's JSON, `type` first: what compaction goes by.
        StructField("key", StringType(), False),
        # Null in every record that the coordinator wrote itself.
        StructField("stored", STORED_RECORD, True),
    ]
)

GROUP_RESPONSES = StructType(
    [
        StructField("source", StringType(), False),
        StructField("partition", IntegerType(), False),
        StructField("seq", LongType(), False),
        StructField("ts", LongType(), False),
        StructField("request_id", StringType(), True),
        StructField("answered_by", StringType(), True),
        StructField("api", StringType(), True),
        StructField("api_version", IntegerType(), True),
        StructField("group_id", StringType(), True),
        StructField("member_id", StringType(), True),
        StructField("error_code", IntegerType(), True),
        StructField("error_name", StringType(), True),
        StructField("generation_id", IntegerType(), True),
        StructField("leader", StringType(), True),
        StructField("protocol_name", StringType(), True),
        StructField("assignment", BinaryType(), True),
        # The whole answer in Kafka's JSON field names for its version. Null where the request failed and the answer has
        # no place to say so: an error beside each thing asked for, and what was asked can't be read. The connection is
        # closed then, as Kafka does.
        StructField("body", StringType(), True),
    ]
)

#: One row each time a group changes state, or a consumer group its epoch, with the rule that fired and its cause; and
#: one each time a member comes or goes: there the state is the same before and after, ``members`` is null, and the
#: cause's member is the one that it is about.
GROUP_TRANSITIONS = StructType(
    [
        StructField("source", StringType(), False),
        StructField("partition", IntegerType(), False),
        StructField("seq", LongType(), False),
        StructField("ts", LongType(), False),
        StructField("group_id", StringType(), False),
        StructField("from_state", StringType(), True),
        StructField("to_state", StringType(), False),
        StructField("generation", IntegerType(), True),
        StructField("protocol_type", StringType(), True),
        StructField("protocol", StringType(), True),
        StructField("leader", StringType(), True),
        # The event of the transition table that fired, e.g. MEMBER_ADDED, SESSION_EXPIRED, LEADER_SYNCED.
        StructField("rule", StringType(), False),
        # Kafka's own words for it, e.g. "Adding new member ...; client reason: ...".
        StructField("reason", StringType(), True),
        StructField("members", ArrayType(StringType()), True),
        StructField("cause_request_id", StringType(), True),
        StructField("cause_api", StringType(), True),
        StructField("cause_member_id", StringType(), True),
        StructField("cause_client_id", StringType(), True),
        StructField("cause_client_host", StringType(), True),
        # Whose request it was (User:NAME), where a gateway or a broker made sure of that; of a timer nobody's.
        StructField("cause_principal", StringType(), True),
        StructField("cause_client_reason", StringType(), True),
        # The timer that fired where no request did it: session, join, sync, expiry.
        StructField("cause_timer", StringType(), True),
    ]
)

REJECTED_REQUESTS = StructType(
    [
        StructField("source", StringType(), False),
        StructField("partition", IntegerType(), True),
        StructField("seq", LongType(), True),
        StructField("ts", LongType(), True),
        StructField("request_id", StringType(), True),
        StructField("api", StringType(), True),
        StructField("group_id", StringType(), True),
        # What is wrong: it names the field, the value and what was expected.
        StructField("reason", StringType(), False),
        # The line or row as it came, as far as it could be read.
        StructField("raw", StringType(), True),
        StructField("traceback", StringType(), True),
    ]
)

TABLES: Final[dict[str, StructType]] = {
    "consumer_offsets": CONSUMER_OFFSETS,
    "group_responses": GROUP_RESPONSES,
    "group_transitions": GROUP_TRANSITIONS,
    "rejected_requests": REJECTED_REQUESTS,
}


def table_arrow(name: str) -> pa.Schema:
    """Returns the Arrow schema of one of `TABLES`.

    Raises:
        KeyError: no table has that name.
    """
    return to_arrow_schema(TABLES[name])
