"""A member of a group without Kafka's protocol: its requests go onto the request log, its answers come from the tables.

It is the same machine as over sockets. What it shares out needn't be topics: any names with numbers of parts will do.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec
from deltalake.exceptions import DeltaError

from coordinator_udf.gateway.responses_table import NewRows
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.rows import request_rows
from coordinator_udf.members.cluster_view import ClusterView, TopicView
from coordinator_udf.members.driver.member import DrivenMember, Listener, MemberError
from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.members.outputs import ErrorRaised, MetadataRequest, Request
from coordinator_udf.protocol.requests import VERSIONS
from coordinator_udf.settings.file import topic_id

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

#: How often the table is looked at for answers, in seconds: as late as that one is seen, beside half a second that its
#: micro-batch takes. A look is a listing of the table's log: half has twice as many for 25 ms on average, double loses
#: 50 ms.
_LOOK_S: Final = 0.05
#: The pause after a look that failed, in seconds: half asks a storage in trouble twice as often, double is a third of
#: the shortest session's 6 s.
_RETRY_S: Final = 1.0
_FIND_COORDINATOR_VERSION: Final = 4


class LogTransport:
    """Appends requests to an embedded request log and reads the table of answers.

    Args:
        root: the folder of a coordinator: its ``log`` and its ``tables``.
        client_id: what the coordinator's tables call the member.
        parts: what there is to share out: names, each with how many parts it has.
        protocol_type: what kind of group it is; all members of a group say the same.
    """

    def __init__(
        self, root: Path, client_id: str, parts: Mapping[str, int], *, protocol_type: str = "consumer"
    ) -> None:
        self._root = root
        self._client_id = client_id
        self._parts = parts
        self._protocol_type = protocol_type
        self._prefix = uuid.uuid4().hex[:16]
        self._count = 0
        self._waiting: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._log: EmbeddedLog | None = None
        self._answers = NewRows(str(root / "tables" / "group_responses"))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-member")
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> Mapping[str, int]:
        """Opens the log and looks where the table of answers ends. See `Transport.start`.

        Raises:
            LogError: there is no log in the folder.
        """
        self._log = EmbeddedLog.open(self._root / "log")
        await self._in_thread(self._answers.read)
        self._following = asyncio.create_task(self._follow())
        return {api: versions[1] for api, versions in VERSIONS.items()} | {"FindCoordinator": _FIND_COORDINATOR_VERSION}

    async def send(self, request: Request) -> Mapping[str, Any]:
        """See `Transport.send`."""
        if request.api == "FindCoordinator":
            found = {"nodeId": 0, "host": socket.gethostname(), "port": 0, "errorCode": 0, "errorMessage": None}
            keys = request.body["coordinatorKeys"]
            return {"throttleTimeMs": 0, "coordinators": [{"key": key, **found} for key in keys]}
        self._count += 1
        request_id = f"{self._prefix}-{self._count}"
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        try:
            await self._in_thread(lambda: self._append(request_id, request))
            return self._as_consumers(await answer)
        finally:
            self._waiting.pop(request_id, None)

    async def metadata(self, asked: MetadataRequest) -> ClusterView:
        """Returns what there is to share out. See `Transport.metadata`."""
        topics = {name: TopicView(name, topic_id(name), count) for name, count in self._parts.items()}
        return ClusterView((0,), topics)

    def hang_up(self, node: str) -> None:
        """Gives up waiting for answers. See `Transport.hang_up`."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the member gave up waiting"))

    async def close(self) -> None:
        """See `Transport.close`."""
        if self._following is not None:
            self._following.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._log is not None:
            self._log.close()

    def _append(self, request_id: str, request: Request) -> None:
        if self._log is None:
            raise ConnectionError("the log is closed")
        body = {**request.body}
        if "protocolType" in body:
            body["protocolType"] = self._protocol_type
        rows = request_rows(
            partitions=self._log.partitions,
            log_ts=self._log.now_ms(),
            request_id=request_id,
            api=request.api,
            api_version=request.api_version,
            client_id=self._client_id,
            client_host=f"/{socket.gethostname()}",
            body=body,
            proposed_member_id=f"{self._client_id}-{uuid.uuid4()}",
        )
        self._log.append(rows)

    def _as_consumers(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns an answer as the machine wants it, which knows groups of consumers only."""
        if answer.get("protocolType") == self._protocol_type:
            return {**answer, "protocolType": "consumer"}
        return answer

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                found = await self._in_thread(self._answers.read)
            except Exception as error:  # noqa: BLE001  without looks no answer would be seen any more
                # The table can't be read now; the next look goes on where this one began.
                if not isinstance(error, OSError | DeltaError):
                    _log.warning("the answers can't be read, trying again", exc_info=error)
                await asyncio.sleep(_RETRY_S)
                continue
            for table in found:
                for request_id, body in zip(table["request_id"].to_pylist(), table["body"].to_pylist(), strict=True):
                    answer = self._waiting.get(request_id)
                    if answer is not None and not answer.done():
                        answer.set_result(msgspec.json.decode(body))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class LogMember:
    """A member in a thread of its own, for programs that don't know of event loops: a worker, or a Spark job's driver.

    Use it as a context: leaving it leaves the group. It polls by itself, and what poll of Kafka's consumer throws is
    raised where its assignment is asked for.
    """

    def __init__(
        self,
        root: str | Path,
        group_id: str,
        parts: Mapping[str, int],
        *,
        client_id: str | None = None,
        properties: Mapping[str, Any] | None = None,
        protocol_type: str = "consumer",
        listener: Listener | None = None,
    ) -> None:
        """Makes a member that has not joined yet.

        Args:
            root: the folder of a running coordinator (its ``--root``).
            parts: what there is to share out: names, each with how many parts it has.
            properties: Kafka's consumer properties, beside the group's id.
            listener: is told of each change, in the member's thread, which sends no heartbeats meanwhile: it is to
                return soon, and can't commit.

        Raises:
            BadRequest: a property can't be.
        """
        self._parts = dict(parts)
        name = client_id or f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}"
        transport = LogTransport(Path(root), name, self._parts, protocol_type=protocol_type)
        # Answers come a micro-batch later, so commits that nobody asked for would only cost.
        defaults = {"enable.auto.commit": False}
        given = {**defaults, **(properties or {}), "group.id": group_id}
        self._member = DrivenMember(given, transport, listener, polls_on=False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"member-{name}", daemon=True)

    @property
    def assignment(self) -> Sequence[TopicPartition]:
        """What the member has now.

        Raises:
            MemberError: poll threw, as where another program has its ``group.instance.id`` by now, or its listener did.
                Each is raised once, and the member polls on when it is asked again, which may have it join again.
        """
        error = self._member.take_error()
        if error is not None:
            raise error
        return self._member.assignment

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits how far the member is with its parts, and waits for it. Not for its listener.

        Raises:
            MemberError: the member hasn't that part (any more), the commit was refused, or its listener asks.
        """
        lost = sorted(set(offsets) - set(self._member.assignment))
        if lost and not self._loop.is_closed():
            named = ", ".join(f"{topic}-{number}" for topic, number in lost)
            raise MemberError(ErrorRaised("commitSync", "CommitFailedException", f"the member doesn't have {named}"))
        self._wait(self._member.commit(offsets))

    def __enter__(self) -> LogMember:
        self._thread.start()
        try:
            self._wait(self._member.start(tuple(self._parts)))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wait(self._member.close())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        is_own = threading.current_thread() is self._thread
        if is_own or self._loop.is_closed():
            work.close()
            said = "a listener can't wait for its own member; let it return first" if is_own else "the member is closed"
            raise MemberError(ErrorRaised("call", "IllegalStateException", said))
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
