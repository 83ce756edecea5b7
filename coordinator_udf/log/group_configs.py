"""The settings that groups have for themselves (KIP-848, KIP-932), as rows of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator_udf.log.rows import control_rows
from coordinator_udf.protocol.partitioner import partition_for


def group_config_rows(partitions: int, log_ts: int, configs: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Returns the rows that tell the shards of groups what these have for themselves.

    Args:
        partitions: the log's number of partitions.
        log_ts: milliseconds since the epoch.
        configs: by group, all settings that it has, by Kafka's names; one without any has none any more.
    """
    rows = []
    for group_id, own in configs.items():
        body = {"group": group_id, "configs": dict(own)}
        everywhere = control_rows(partitions=partitions, log_ts=log_ts, api="GroupConfig", body=body)
        rows.append({**everywhere[partition_for(group_id, partitions)], "parts": 1})
    return rows
