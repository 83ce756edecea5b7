"""The rows of the shipped traces, as a shard gets them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from coordinator_udf.protocol.log_row import Request
from coordinator_udf.replay.inputs.detect import read_source
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.settings.coordinator import Settings
from tests.conftest import ROOT

SAMPLES = sorted((ROOT / "tests" / "data" / "traces").glob("*.jsonl.gz"))


@cache
def rows_of(trace: Path) -> tuple[Settings, list[Request]]:
    """The rows of one trace, without failovers: a shard whose state is a row keeps no log to load again."""
    source = read_source(trace, trace.name, ReplayOptions())
    rows = [row for row in source.rows if row["api"] != "Failover"]
    return source.settings, [Request(*(row[name] for name in Request._fields)) for row in rows]
