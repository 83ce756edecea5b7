"""Appends the requests of all connections to the log in groups: one durable write for all that came in meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Protocol

from coordinator_udf.gateway.server.standstill import Standstill
from coordinator_udf.log.kafka.appender import NotAppendedError
from coordinator_udf.protocol.errors import BadRequest

_log = logging.getLogger(__name__)

#: How often at most it is logged that requests are dropped, in seconds: half has twice the lines in an overload, double
#: tells later how many.
_SAY_EACH_S: Final = 5.0


class RequestLog(Protocol):
    """A log that rows can be appended to; coordinator_udf.log.embedded.EmbeddedLog is one."""

    def append(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Appends rows durably and in order, all or none."""

    def now_ms(self) -> int:
        """Returns the clock by which rows are stamped."""


class RequestRows(NamedTuple):
    """The rows of one request.

    Attributes:
        rows: rows of the request log.
        done: is called in the loop with None, or with the error that kept the rows out.
        lane: whose request it is; requests of one lane stay in their order.
        is_wanted: whether anything would come of it still.
    """

    rows: list[dict[str, Any]]
    done: Callable[[Exception | None], None]
    lane: object
    is_wanted: Callable[[], bool]


class Unwanted(Exception):
    """A request that was not appended, for nobody waits for its answer any more."""


class GroupCommit:
    """The one writer of a gateway.

    The entries of a lane reach the log in the order in which they were submitted. Where not all that wait can be
    appended, the lanes that were heard of last go first: who has waited for long has given up before an answer comes.

    Args:
        requests_max: how many requests of one connection may be under way.

    Attributes:
        room: says how many rows the log may take now, None if any number; `look_again` says that there may be more.
        standstill: tells when this process stood still.
        appends: group commits to the log.
        rows: rows appended.
        shed: entries that were dropped, as nobody wanted them any more.
    """

    def __init__(self, log: RequestLog, *, linger_ms: int, rows_max: int, requests_max: int) -> None:
        self._log = log
        self._linger_s = linger_ms / 1000
        self._rows_max = rows_max
        self.room: Callable[[], int] | None = None
        #: Lanes with their entries, those that were heard of last at the end.
        self._lanes: dict[object, deque[RequestRows]] = {}
        self._wake = asyncio.Event()
        self._more_room = asyncio.Event()
        self.standstill = Standstill(requests_max)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gateway-append")
        self._said_at = float("-inf")
        self._unsaid = 0
        self.appends = 0
        self.rows = 0
        self.shed = 0

    def submit(self, entry: RequestRows) -> None:
        """Queues a request; call it in the loop."""
        entries = self._lanes.pop(entry.lane, None) or deque()
        entries.append(entry)
        self._lanes[entry.lane] = entries
        self._wake.set()

    def look_again(self) -> None:
        """Goes on with what waited for room in the log; call it in the loop."""
        self._more_room.set()

    async def run(self) -> None:
        """Appends until it is cancelled."""
        loop = asyncio.get_running_loop()
        watching = asyncio.create_task(self.standstill.watch())
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(self._linger_s)
                while self._lanes:
                    # Clients that gave up since they asked mustn't live on in the log.
                    await self.standstill.wait_until_read()
                    rows_max = self._rows_max if self.room is None else min(self._rows_max, self.room())
                    if rows_max <= 0:
                        self._more_room.clear()
                        await self._more_room.wait()
                        continue
                    group = self._next_group(rows_max)
                    if group:
                        errors = await loop.run_in_executor(self._thread, self._append, group)
                        for entry, error in zip(group, errors, strict=True):
                            entry.done(error)
                self._wake.clear()
        finally:
            watching.cancel()
            self._thread.shutdown(wait=True)

    def _next_group(self, rows_max: int) -> list[RequestRows]:
        """Returns the entries that go to the log next: all if they fit, else those of the newest lanes."""
        lanes = self._lanes
        newest: list[list[RequestRows]] = []
        size = 0
        while lanes and size < rows_max:
            lane, entries = lanes.popitem()
            taken: list[RequestRows] = []
            while entries and (size < rows_max or not size):
                entry = entries.popleft()
                if entry.is_wanted():
                    size += len(entry.rows)
                    taken.append(entry)
                else:
                    self._drop(entry)
            newest.append(taken)
            if entries:
                lanes[lane] = entries
        return [entry for taken in reversed(newest) for entry in taken]

    def _drop(self, entry: RequestRows) -> None:
        self.shed += 1
        self._unsaid += 1
        entry.done(Unwanted())
        if (now := time.monotonic()) - self._said_at > _SAY_EACH_S:
            _log.warning("%d requests are dropped before the log: nobody waits for them any more", self._unsaid)
            self._said_at, self._unsaid = now, 0

    def _append(self, group: list[RequestRows]) -> list[Exception | None]:
        try:
            self._write([row for entry in group for row in entry.rows])
        except BadRequest as error:
            if len(group) == 1:
                return [error]
            # One of them can't be a row: the others must not suffer for it.
            return [self._append([entry])[0] for entry in group]
        except NotAppendedError as error:
            _log.error("some requests may not be in the log, their clients will retry: %s", error)
            return [error if any(row["partition"] in error.partitions for row in e.rows) else None for e in group]
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
