"""Appends the requests of all connections to the log in groups: one durable write for all that came in meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from coordinator_udf.protocol.errors import BadRequest

_log = logging.getLogger(__name__)


class RequestLog(Protocol):
    """A log that rows can be appended to; coordinator_udf.log.embedded.EmbeddedLog is one."""

    def append(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Appends rows durably and in order, all or none."""

    def now_ms(self) -> int:
        """The clock by which rows are stamped."""


class Entry(NamedTuple):
    """The rows of one request; ``done`` is called in the loop with None, or with the error that kept them out."""

    rows: list[dict[str, Any]]
    done: Callable[[Exception | None], None]


class GroupCommit:
    """The one writer of a gateway. Entries reach the log in the order in which they were submitted."""

    def __init__(self, log: RequestLog, *, linger_ms: int, rows_max: int) -> None:
        self._log = log
        self._linger_s = linger_ms / 1000
        self._rows_max = rows_max
        self._waiting: deque[Entry] = deque()
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gateway-append")
        self.appends = 0
        self.rows = 0

    def submit(self, entry: Entry) -> None:
        """Queues a request; call it in the loop."""
        self._waiting.append(entry)
        self._wake.set()

    async def run(self) -> None:
        """Appends until it is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(self._linger_s)
                while self._waiting:
                    group = self._next_group()
                    errors = await loop.run_in_executor(self._thread, self._append, group)
                    for entry, error in zip(group, errors, strict=True):
                        entry.done(error)
                self._wake.clear()
        finally:
            self._thread.shutdown(wait=True)

    def _next_group(self) -> list[Entry]:
        group = [self._waiting.popleft()]
        size = len(group[0].rows)
        while self._waiting and size + len(self._waiting[0].rows) <= self._rows_max:
            entry = self._waiting.popleft()
            size += len(entry.rows)
            group.append(entry)
        return group

    def _append(self, group: list[Entry]) -> list[Exception | None]:
        try:
            self._write([row for entry in group for row in entry.rows])
        except BadRequest as error:
            if len(group) == 1:
                return [error]
            # One of them can't be a row: the others must not suffer for it.
            return [self._append([entry])[0] for entry in group]
        except Exception as error:  # noqa: BLE001  whatever the storage says, the clients are told to come again
            _log.exception("%d requests could not be appended to the log; their clients will retry", len(group))
            return [error] * len(group)
        return [None] * len(group)

    def _write(self, rows: list[dict[str, Any]]) -> None:
        now = self._log.now_ms()
        for row in rows:
            row["log_ts"] = now
        self._log.append(rows)
        self.appends += 1
        self.rows += len(rows)
