"""The records with which a coordinator begins: what --state holds, and what only the answers of the log tell of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.starting_groups import agrees, starting_groups


class StartingRecords(NamedTuple):
    """The records, and how many there are of each kind."""

    records: list[dict[str, Any]]
    notes: Counter[str]


def starting_records(entries: Sequence[Entry], stated: Sequence[dict[str, Any]]) -> StartingRecords:
    """Returns what the coordinator begins with.

    Of a classic group that was in a rebalance, or has had one since it was stored, the answers tell more.

    Args:
        entries: the log in order, or what some of its shards were asked.
        stated: the records of --state from before the log began, of the same shards.
    """
    stored = {record["key"]["group"]: record["value"] for record in stated if record["key"]["type"] == "GroupMetadata"}
    consumers = {record["key"]["groupId"] for record in stated if "groupId" in record["key"]}
    told = {record["key"]["group"]: record for record in starting_groups(entries)}
    told = {
        group_id: record
        for group_id, record in told.items()
        if group_id not in consumers and not agrees(stored.get(group_id), record["value"])
    }
    records = [
        record for record in stated if record["key"]["type"] != "GroupMetadata" or record["key"]["group"] not in told
    ]
    notes = Counter(
        {
            "records of --state that the log begins with": len(records),
            "groups that were there before the log began, begun with what answers tell": len(told),
        }
    )
    return StartingRecords([*records, *told.values()], +notes)


def group_of(record: dict[str, Any]) -> str:
    """Returns the group that a record is about."""
    group_id: str = record["key"].get("group") or record["key"]["groupId"]
    return group_id
