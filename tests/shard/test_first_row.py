"""A row at 0 says nothing of the time: what comes after it must not be taken for half a century of expiry checks."""

from __future__ import annotations

import time

from coordinator_udf.protocol.rows import Request
from coordinator_udf.protocol.settings import Settings
from coordinator_udf.shard import Shard
from coordinator_udf.shard_rows import process_rows


def test_topics_told_before_any_time_cost_nothing() -> None:
    shard = Shard(0, Settings.from_kafka({}))
    began = time.process_time()
    process_rows(shard, [Request(0, 0, 0, None, "TopicMetadata", 0, body='{"topics":[]}')])
    process_rows(shard, [Request(0, 1, 1_790_000_000_000, None, "Tick", 0)])
    assert time.process_time() - began < 1
    assert shard.started
