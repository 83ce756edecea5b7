"""The status line says what was handled, and where nobody asks is silent for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator_udf.streaming.sink import Totals
from coordinator_udf.streaming.status import StatusLine
from tests.waiting import wait


class Query:
    """A query that is at another micro-batch each time it is asked."""

    isActive = True  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.asked = 0

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        self.asked += 1
        return SimpleNamespace(batchId=self.asked, durationMs={"triggerExecution": 3})


@pytest.mark.parametrize(("idle_interval_s", "is_told_when_idle"), [(3_600.0, False), (0.0, True)])
def test_micro_batches_without_requests_are_told_of_seldom(
    idle_interval_s: float, is_told_when_idle: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    query, totals = Query(), Totals()
    line = StatusLine(cast(Any, query), totals, lambda _: "0 rows", interval_s=0.001, idle_interval_s=idle_interval_s)
    line.start()
    try:
        wait(lambda: query.asked >= 5, "it has looked some times")
        told = "".join(capsys.readouterr())
        assert (told.count("requests/s") > 1) is is_told_when_idle
        assert "batch 1 (3 ms)" in told
        totals.requests += 1
        wait(lambda: "requests/s" in "".join(capsys.readouterr()), "what was handled is told")
    finally:
        line.close()
