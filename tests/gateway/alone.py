"""A gateway whose coordinator is the test itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from coordinator_udf.gateway.gateway import Gateway
from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.log.embedded import EmbeddedLog
from tests.gateway.in_process import PARTITIONS, topics
from tests.gateway.wire import Wire
from tests.waiting import wait

KNOWN = topics(t1=4, t2=2)

METADATA = {
    "topics": None,
    "allowAutoTopicCreation": False,
    "includeClusterAuthorizedOperations": False,
    "includeTopicAuthorizedOperations": False,
}


class Alone:
    """A gateway before a real log that nobody reads: what comes back is what the test answers."""

    def __init__(self, path: Path, *, is_loading: bool = False, **settings: Any) -> None:
        self.log = EmbeddedLog.create(path / "log.db", PARTITIONS)
        self.gateway = Gateway(self.log, KNOWN, GatewaySettings(port=0, **settings), is_loading=is_loading)
        self.gateway.start()

    def stand_still(self) -> Callable[[], None]:
        """Keeps the gateway's thread from doing anything, as if the process were stopped; gives what lets it go on."""
        stopped, resumed = threading.Event(), threading.Event()

        def stand() -> None:
            stopped.set()
            resumed.wait()

        assert self.gateway._loop is not None
        self.gateway._loop.call_soon_threadsafe(stand)
        stopped.wait()
        return resumed.set

    def wire(self) -> Wire:
        return Wire(self.gateway.port)

    def requests(self) -> list[dict[str, Any]]:
        """The rows of the log that are requests."""
        rows = pa.Table.from_batches(list(self.log.read(0, self.log.end()))).to_pylist()
        # Where the machine had no time for this process for some seconds, the log says so.
        return [row for row in rows if row["api"] not in ("TopicMetadata", "Downtime")]

    def wait_for_requests(self, count: int) -> list[dict[str, Any]]:
        wait(lambda: len(self.requests()) >= count, f"{count} requests are in the log")
        return self.requests()

    def answer(self, *rows: dict[str, Any], **body: Any) -> None:
        text = msgspec.json.encode({"throttleTimeMs": 0, "errorCode": 0, **body}).decode()
        ids = [row["request_id"] for row in rows]
        self.gateway.answers(pa.table({"request_id": ids, "body": [text] * len(ids)}))
