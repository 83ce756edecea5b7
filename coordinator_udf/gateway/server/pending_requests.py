"""The way of a request to the coordinator: onto the log, and back when its answer comes."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from coordinator_udf.gateway.apis.errors import loading, unanswered
from coordinator_udf.gateway.server.assignment_delivery import Asked, AssignmentDelivery
from coordinator_udf.gateway.server.calls import WAITING, Call, Nameless, find_nameless, is_sign_of_life, is_wanted
from coordinator_udf.gateway.server.futures import Unanswered
from coordinator_udf.gateway.server.group_commit import GroupCommit, RequestRows
from coordinator_udf.gateway.server.interfaces import Closed, MakeBody, ToldBody
from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.log.rows import request_rows
from coordinator_udf.protocol.answer_parts import merge_parts
from coordinator_udf.protocol.errors import BadRequest, Errors
from coordinator_udf.protocol.failed_answer import failed_answer
from coordinator_udf.protocol.wire.shaping import answer

_log = logging.getLogger(__name__)

#: How long a SyncGroup may wait for its leader on top of the request timeout: its request doesn't say, so as long as
#: Kafka's longest session.
_SYNC_WAIT_MS: Final = 1_800_000


@dataclass(slots=True)
class _Pending:
    """A request without an answer; ``nameless`` if only the answer tells its member's id."""

    api: str
    api_version: int
    read_again: MakeBody
    answered: asyncio.Future[MakeBody]
    timer: asyncio.TimerHandle | None
    nameless: Nameless | None
    heartbeat: Asked | None = None
    is_sign_of_life: bool = False
    is_in_log: bool = False
    rows_due: int = 0
    #: How many rows of the log it consists of, and what came of those that were answered alone, by partition.
    rows: int = 1
    parts: dict[int, str | None] = field(default_factory=dict)


class PendingRequests:
    """The requests of this gateway that the coordinator owes an answer to. Everything here runs in the loop.

    Args:
        name: of the gateway, by `new_name`.
        is_loading: whether no request goes to the log before `loaded`. Each waits for that for a while, and is then
            answered as Kafka does while it loads: a client that is refused stays away for longer, and one that waits
            for long gives up.
    """

    def __init__(
        self,
        commit: GroupCommit,
        partitions: int,
        settings: GatewaySettings,
        *,
        name: str | None = None,
        is_loading: bool = False,
    ) -> None:
        self._commit = commit
        self._partitions = partitions
        self._settings = settings
        self._pending: dict[str, _Pending] = {}
        self._prefix = f"{name or new_name()}-"
        self._count = 0
        self.timed_out = 0
        self.withdrawn = 0
        #: Rows in the log whose answers are due as soon as they are handled.
        self._rows_due = 0
        #: Requests that wait for nobody, by when they time out; answered ones may be among them still.
        self._expected: deque[tuple[float, str]] = deque()
        self._expecting: asyncio.TimerHandle | None = None
        self._delivery = AssignmentDelivery()
        #: Heartbeats of KIP-848 whose clients are gone and whose answers are still to come.
        self._unheard: dict[str, Asked] = {}
        #: Whether the coordinator was away, and hasn't answered anything since.
        self._is_away = False
        #: How many requests there had been when it came back: it has caught up when it answers a later one.
        self._before_return: int | None = None
        #: While the coordinator loads: what is to go to the log after that, by the request's id, in order.
        self._held: dict[str, RequestRows] | None = {} if is_loading else None

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def prefix(self) -> str:
        """How every request id of this gateway begins."""
        return self._prefix

    def room(self) -> int:
        """Returns how many rows more the log may take before the coordinator has answered some of those that it has."""
        return self._settings.unanswered_rows_max - self._rows_due

    def loaded(self) -> None:
        """Lets requests go to the log from now on."""
        held, self._held = self._held or {}, None
        for entry in held.values():
            if entry.is_wanted():
                self._commit.submit(entry)

    def look_at_coordinator(self, *, is_away: bool) -> None:
        """Sees to it that members whose coordinator is away go on to say that they live. Call it each second.

        A client sends no heartbeat while it waits for the answer to the one before, and the log's time goes on: its
        session would end. So heartbeats in the log are taken on trust after a while, as a coordinator that loads does.
        That goes on until it answers something that is waited for, or was asked after its return: it may have a long
        log to work through.
        """
        self._is_away = self._is_away or is_away
        if not self._is_away:
            return
        if is_away:
            self._before_return = None
        elif self._before_return is None:
            self._before_return = self._count
        settings = self._settings
        latest_s = asyncio.get_running_loop().time() + (settings.request_timeout_ms - settings.loading_hold_ms) / 1000
        for times_out_s, request_id in self._expected:
            if times_out_s > latest_s:
                break
            pending = self._pending.get(request_id)
            if pending is not None and pending.is_sign_of_life and pending.is_in_log:
                if pending.heartbeat is not None:
                    # What the coordinator says to it goes along with an answer to come, whatever connection that takes.
                    self._keep_unheard(request_id, pending.heartbeat._replace(lane=object()))
                self._fail(request_id, loading(pending.api))

    def call(self, call: Call, read_again: MakeBody, on_log: Callable[[], None]) -> asyncio.Future[MakeBody]:
        """Puts a request on its way.

        Args:
            read_again: reads the request's body again, which its failure needs.
            on_log: called once when the request's rows are in the log, or will never be.

        Returns:
            What makes the body of the answer. Cancelling it gives up waiting; the coordinator answers nonetheless.
        """
        loop = asyncio.get_running_loop()
        request_id = self._next_id()
        answered = Unanswered(partial(self._forget, request_id))
        nameless = find_nameless(call)
        heartbeat = None
        if call.api == "ConsumerGroupHeartbeat":
            heartbeat = Asked(call.body["memberId"] or (nameless.member_id if nameless is not None else ""), call.lane)
            self._delivery.note_request(heartbeat)
        if call.api in WAITING:
            # Its frame must not stay in memory for minutes, and its failure repeats nothing of it.
            read_again = dict
        timer = None
        if call.api in WAITING:
            timer = loop.call_later(self._patience_ms(call) / 1000, self._time_out_waiting, request_id)
        else:
            self._expect(loop, request_id)
        self._pending[request_id] = _Pending(
            call.api, call.api_version, read_again, answered, timer, nameless, heartbeat, is_sign_of_life(call)
        )

        def done(error: Exception | None) -> None:
            on_log()
            if error is None:
                self._note_in_log(request_id, len(rows))
                if nameless is not None and answered.cancelled():
                    self._withdraw(nameless)
            else:
                self._fail(
                    request_id, Errors.INVALID_REQUEST if isinstance(error, BadRequest) else unanswered(call.api)
                )

        rows: list[dict[str, Any]] = []
        try:
            rows = self._rows(request_id, call, None if nameless is None else nameless.member_id)
        except BadRequest as error:
            _log.warning("%s v%d of %s is refused: %s", call.api, call.api_version, call.client_host, error)
            done(error)
        else:
            self._pending[request_id].rows = len(rows)
            self._submit(request_id, RequestRows(rows, done, call.lane, partial(is_wanted, call, answered)))
        return answered

    def deliver_parts(self, answers: Iterable[tuple[str, int, str | None]]) -> None:
        """Hands out answers to rows of the log: a request id, the row's partition and a JSON body.

        The answer to a request that asked several shards is handed out when all of them have answered.
        """
        whole: list[tuple[str, str | None]] = []
        for request_id, partition, body in answers:
            pending = self._pending.get(request_id)
            if pending is None or pending.rows == 1:
                whole.append((request_id, body))
                continue
            pending.parts[partition] = body
            if len(pending.parts) == pending.rows:
                bodies = [pending.parts[number] for number in sorted(pending.parts)]
                whole.append((request_id, merge_parts(pending.api, pending.api_version, bodies, None)))
        self.deliver(whole)

    def deliver(self, answers: Iterable[tuple[str, str | None]]) -> None:
        """Hands out answers: pairs of a request id and a JSON body. What nobody waits for any more is dropped.

        An answer without a body failed, and the shard couldn't read what was asked, as its connection can.
        """
        for request_id, body in answers:
            pending = self._pending.get(request_id)
            if self._is_away and self._is_caught_up(request_id, pending):
                self._is_away, self._before_return = False, None
            if body is None:
                self._fail(request_id, Errors.UNKNOWN_SERVER_ERROR)
                continue
            heartbeat = self._unheard.pop(request_id, None) if pending is None else pending.heartbeat
            told = body if heartbeat is None else self._delivery.completed(heartbeat, body)
            if pending is not None and not pending.answered.done():
                pending.answered.set_result(ToldBody(told))
                self._forget(request_id)

    def _is_caught_up(self, request_id: str, pending: _Pending | None) -> bool:
        """Returns whether an answer says that the coordinator, which was away, has worked through the log.

        Of a join that waited nobody knows since when it has an answer.
        """
        if pending is not None and not pending.answered.done() and pending.api not in WAITING:
            return True
        return self._before_return is not None and int(request_id.removeprefix(self._prefix)) > self._before_return

    def _submit(self, request_id: str, entry: RequestRows) -> None:
        if self._held is None:
            self._commit.submit(entry)
            return
        self._held[request_id] = entry
        hold_s = self._settings.loading_hold_ms / 1000
        asyncio.get_running_loop().call_later(hold_s, self._tell_that_it_loads, request_id)

    def _tell_that_it_loads(self, request_id: str) -> None:
        pending = self._pending.get(request_id)
        if self._held is not None and pending is not None:
            self._fail(request_id, loading(pending.api))

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"

    def _withdraw(self, member: Nameless) -> None:
        """Lets a member leave whose client is gone and never learnt its id: nobody else could, and its group waits."""
        if member.is_static:
            return
        self.withdrawn += 1
        rows = self._rows(self._next_id(), member.leaving(), None)
        self._commit.submit(RequestRows(rows, lambda _: None, member, lambda: True))

    def _rows(self, request_id: str, call: Call, proposed_member_id: str | None) -> list[dict[str, Any]]:
        return request_rows(
            partitions=self._partitions,
            log_ts=0,
            request_id=request_id,
            api=call.api,
            api_version=call.api_version,
            client_id=call.client_id,
            client_host=call.client_host,
            principal=call.principal,
            body=call.body,
            proposed_member_id=proposed_member_id,
        )

    def _patience_ms(self, call: Call) -> int:
        wait = 0
        if call.api == "JoinGroup":
            wait = max(call.body.get("rebalanceTimeoutMs", call.body["sessionTimeoutMs"]), 0)
        elif call.api == "SyncGroup":
            wait = _SYNC_WAIT_MS
        return self._settings.request_timeout_ms + wait

    def _expect(self, loop: asyncio.AbstractEventLoop, request_id: str) -> None:
        """Has a request time out that waits for nobody: all of those are patient for as long, and share a timer."""
        timeout_s = self._settings.request_timeout_ms / 1000
        expected = self._expected
        if self._expecting is None:
            self._expecting = loop.call_later(timeout_s, self._time_out_due)
        while expected and expected[0][1] not in self._pending:
            expected.popleft()
        expected.append((loop.time() + timeout_s, request_id))

    def _time_out_due(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        expected = self._expected
        if (patient_until := self._patient_until_s()) > now:
            expected = self._expected = deque((max(due, patient_until), request_id) for due, request_id in expected)
        while expected and (expected[0][0] <= now or expected[0][1] not in self._pending):
            self._time_out(expected.popleft()[1])
        self._expecting = loop.call_later(expected[0][0] - now, self._time_out_due) if expected else None

    def _time_out_waiting(self, request_id: str) -> None:
        loop = asyncio.get_running_loop()
        pending = self._pending.get(request_id)
        if pending is not None and (patient_until := self._patient_until_s()) > loop.time():
            pending.timer = loop.call_at(patient_until, self._time_out_waiting, request_id)
        else:
            self._time_out(request_id)

    def _patient_until_s(self) -> float:
        """Returns until when no request times out: where this process stood still, the coordinator had as little time.

        A broker that was stopped answers then, too.
        """
        return self._commit.standstill.ended_s() + self._settings.request_timeout_ms / 1000

    def _time_out(self, request_id: str) -> None:
        pending = self._pending.get(request_id)
        if pending is not None:
            self.timed_out += 1
            _log.warning("%s v%d got no answer in time", pending.api, pending.api_version)
            self._fail(request_id, unanswered(pending.api))

    def _fail(self, request_id: str, error: Errors) -> None:
        pending = self._pending.get(request_id)
        if pending is not None and not pending.answered.done():
            api, version, read_again = pending.api, pending.api_version, pending.read_again
            pending.answered.set_result(lambda: _failed(api, version, read_again(), error))
            self._forget(request_id)

    def _note_in_log(self, request_id: str, rows: int) -> None:
        pending = self._pending.get(request_id)
        if pending is not None:
            pending.is_in_log = True
            if pending.api not in WAITING:
                pending.rows_due = rows
                self._rows_due += rows

    def _forget(self, request_id: str) -> None:
        pending = self._pending.pop(request_id, None)
        if self._held is not None and (entry := self._held.get(request_id)) is not None and not entry.is_wanted():
            del self._held[request_id]
        if pending is not None:
            if pending.timer is not None:
                pending.timer.cancel()
            if pending.rows_due:
                self._rows_due -= pending.rows_due
                self._commit.look_again()
            if pending.heartbeat is not None and pending.answered.cancelled():
                self._keep_unheard(request_id, pending.heartbeat)
            if pending.nameless is not None and pending.is_in_log and pending.answered.cancelled():
                self._withdraw(pending.nameless)

    def _keep_unheard(self, request_id: str, heartbeat: Asked) -> None:
        self._unheard[request_id] = heartbeat
        if len(self._unheard) > self._settings.max_in_flight:
            del self._unheard[next(iter(self._unheard))]


def new_name() -> str:
    """Returns a gateway's name, with which its request ids begin: those of one log come from many gateways."""
    return uuid.uuid4().hex[:16]


def _failed(api: str, api_version: int, request: Mapping[str, Any], error: Errors) -> Mapping[str, Any]:
    if error is Errors.NONE:
        return answer(api, api_version, errorCode=0)
    body = failed_answer(api, api_version, request, error)
    if body is None:
        raise Closed(f"{api} v{api_version} failed with {error.name}, which no answer to it can say")
    return body
