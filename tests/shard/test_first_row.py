"""A row at 0 says nothing of the time: what comes after it must not be taken for half a century of expiry checks."""

from __future__ import annotations

from unittest.mock import patch

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.shard import Shard
from tests.shard.edge import process_rows


def test_topics_told_before_any_time_set_off_no_looks_for_expired_offsets() -> None:
    shard = Shard(0, Settings.from_kafka({}))
    with patch("coordinator_udf.shard.shard.expire_offsets") as look:
        process_rows(shard, [Request(0, 0, 0, None, "TopicMetadata", 0, body='{"topics":[]}')])
        process_rows(shard, [Request(0, 1, 1_790_000_000_000, None, "Tick", 0)])
    assert look.call_count == 0
    assert shard.started
