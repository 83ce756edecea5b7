"""One shard that handles requests as they come, in virtual time: for closed loops and simulations.

Whoever holds it says what time it is. Before a request or an event at time t is handled, every timer with a deadline of
at most t has fired; between two of them `advance` lets timers fire at their own times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from coordinator_udf.groups.decisions import PLACES, Decisions
from coordinator_udf.groups.model.timers import DEADLINE, NEVER_MS
from coordinator_udf.log.rows import control_rows
from coordinator_udf.protocol.log_row import Request
from coordinator_udf.protocol.placeholders import fill_placeholders
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.shard.shard import Shard

_RESPONSE = PLACES["responses"]
_ASSIGNMENT = PLACES["assignments"]
_decode = msgspec.json.decode


class Answer(msgspec.Struct, frozen=True):
    """An answer, with the bytes of assignments in base64. ``ts_ms`` is when it was given."""

    request_id: str
    ts_ms: int
    body: dict[str, Any]


class VirtualTimeShard:
    """One shard of a coordinator, loaded and empty at first."""

    def __init__(
        self,
        settings: Settings,
        topics: Iterable[Topic],
        now_ms: int,
        *,
        keep_log: bool = True,
        partition: int = 0,
        decided_by_all: list[Decisions] | None = None,
    ) -> None:
        """Makes one that knows these topics.

        Args:
            keep_log: whether it keeps its own log, to be loaded from again.
            partition: which one it is, where there are several.
            decided_by_all: where it puts what it decides, too, in order with what others decide that put theirs there.
        """
        self.shard = Shard(partition, settings, keep_log=keep_log)
        #: What it decided, for whoever wants tables of it; `answers` takes none of it away.
        self.decisions: list[Decisions] = []
        self._decided_by_all = decided_by_all
        self._offset = 0
        self._answers: list[Answer] = []
        self._assignments: dict[tuple[int, str], bytes] = {}
        self.set_topics(now_ms, topics)
        self.control(now_ms, "LoadEnd")

    def handle(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Handles the rows of a request (log.rows.request_rows, those of its partition) or of a control event."""
        shard = self.shard
        for row in rows:
            if row["log_ts"] >= shard.ctx.timers.bound_ms:
                shard.run_timers(row["log_ts"], 0)
            shard.handle_row(Request(offset=self._offset, **row), 0)
            self._offset += 1
        if not shard.ctx.decisions.is_empty():
            self._take_decisions()

    def control(self, now_ms: int, api: str, body: Mapping[str, Any] | None = None) -> None:
        """Handles one control event (schemas.requests.CONTROL_APIS)."""
        rows = control_rows(partitions=1, log_ts=now_ms, api=api, body=body)
        self.handle([{**row, "partition": self.shard.partition} for row in rows])

    def set_topics(self, now_ms: int, topics: Iterable[Topic]) -> None:
        """Says which topics exist from now on."""
        named = [{"name": topic.name, "partitions": topic.partitions, "id": topic.id} for topic in topics]
        self.control(now_ms, "TopicMetadata", {"topics": named})

    def advance(self, now_ms: int) -> None:
        """Lets every timer fire that is due by then, each at its own time."""
        self.control(now_ms, "Tick")

    @contextmanager
    def timers_wait(self) -> Iterator[None]:
        """Lets no timer fire that is due, whatever is handled meanwhile: they fire after it."""
        timers = self.shard.ctx.timers
        timers.bound_ms = NEVER_MS
        yield
        timers.find_bound()

    def catch_up(self, now_ms: int) -> None:
        """Lets every timer fire that is due by then, all of them at that time: as after a pause."""
        self.shard.ctx.now_ms = now_ms
        self.advance(now_ms)

    def unload(self, now_ms: int) -> None:
        """Lets the shard go: who waits is answered NOT_COORDINATOR."""
        self.control(now_ms, "Unload")

    def load(self, now_ms: int) -> None:
        """Loads the shard from its own log; members get fresh sessions."""
        self.control(now_ms, "Failover")

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the timer that fires next, or None."""
        return self.shard.ctx.timers.next_deadline_ms()

    def deadlines_ms(self) -> list[int]:
        """Returns the times of all armed timers, in order."""
        return sorted(entry[DEADLINE] for entry in self.shard.ctx.timers.entries())

    def answers(self) -> list[Answer]:
        """Takes the answers given since this was last asked, in order."""
        taken, self._answers = self._answers, []
        return taken

    def _take_decisions(self) -> None:
        decided, self.shard.ctx.decisions = self.shard.ctx.decisions, Decisions()
        for kept in decided.assignments:
            record = kept[_ASSIGNMENT["record_offset"]], kept[_ASSIGNMENT["member_id"]]
            self._assignments[record] = kept[_ASSIGNMENT["payload"]]
        for response in decided.responses:
            request_id = response[_RESPONSE["request_id"]]
            if request_id is not None:
                self._answers.append(Answer(request_id, response[_RESPONSE["ts"]], self._body(response)))
        self.decisions.append(decided)
        if self._decided_by_all is not None:
            self._decided_by_all.append(decided)

    def _body(self, response: tuple[Any, ...]) -> dict[str, Any]:
        text = response[_RESPONSE["body"]]
        if response[_RESPONSE["assignment_refs"]] is not None:
            text = fill_placeholders(text, lambda offset, member_id: self._assignments[offset, member_id])
        body: dict[str, Any] = _decode(text)
        return body
