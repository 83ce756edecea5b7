"""The gateway: Kafka clients on one side, the request log and the coordinator's answers on the other."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa
from prometheus_client import CollectorRegistry

from coordinator_udf.background import BackgroundThread
from coordinator_udf.gateway.apis.cluster import Node
from coordinator_udf.gateway.group_configs import GroupConfigStore
from coordinator_udf.gateway.metrics import GatewayMetrics, MeasuredHandler, MeasuredPassage
from coordinator_udf.gateway.partition_ends import PartitionEnds
from coordinator_udf.gateway.peers import FIRST_ID, FIRST_ID_BEFORE_CLUSTER, Peers
from coordinator_udf.gateway.security.authorizer import Authorizer, AuthorizingHandler
from coordinator_udf.gateway.security.load import Security
from coordinator_udf.gateway.security.operations import OperationsHandler
from coordinator_udf.gateway.server.connection import FREE_FRAME_BYTES, Connection
from coordinator_udf.gateway.server.dispatch import Dispatcher
from coordinator_udf.gateway.server.garbage import Garbage
from coordinator_udf.gateway.server.group_commit import GroupCommit
from coordinator_udf.gateway.server.interfaces import Handler, Passage, Shared
from coordinator_udf.gateway.server.limits import ByteBudget
from coordinator_udf.gateway.server.listener import bound_socket, serve
from coordinator_udf.gateway.server.pending_requests import PendingRequests, new_name
from coordinator_udf.gateway.settings import GatewaySettings, GatewaySettingsError
from coordinator_udf.gateway.status import GatewayStatus
from coordinator_udf.gateway.topic_store import TopicStore
from coordinator_udf.gateway.upstream.behind import ClusterBehind
from coordinator_udf.gateway.upstream.watch import UpstreamCluster
from coordinator_udf.log.configured_topics import keep_topics
from coordinator_udf.log.opening import AppendableLog, hold_gateway_lock
from coordinator_udf.protocol.requests import Topic

_log = logging.getLogger(__name__)

#: How long a stop waits for connections to close and for an append that is under way, in seconds; then it fails. An
#: append may wait for another process that holds the file for up to BUSY_TIMEOUT_S; service managers give a stop 30 s
#: (Kubernetes) or 90 s (systemd) in all, so double is never reached there.
_STOP_S: Final = 30.0


class Gateway:
    """A gateway in a thread of its own. Any number of them may stand before one log.

    Args:
        log: the request log; `append` is called in another thread than the caller's.
        topics: the topics that clients are to see.
        settings: where to listen, and the limits.
        announce: whether the topics are put on the log at the start; no, where somebody else has done so.
        listener: a socket bound to the address already; it is listened on at the start.
        ends: where partitions end.
        cluster: the cluster behind the gateway, looked at once; the topics are its.
        security: who may come in; None for everybody.
        metrics: where the gateway's metrics are registered, if anywhere.
        is_loading: whether the coordinator doesn't read the log yet: until `loaded` no request goes there.

    Raises:
        GatewaySettingsError: there is a cluster, and the log has topics of its own.
    """

    def __init__(
        self,
        log: AppendableLog,
        topics: Iterable[Topic],
        settings: GatewaySettings | None = None,
        *,
        announce: bool = True,
        listener: socket.socket | None = None,
        ends: PartitionEnds | None = None,
        cluster: UpstreamCluster | None = None,
        security: Security | None = None,
        metrics: CollectorRegistry | None = None,
        is_loading: bool = False,
    ) -> None:
        self._metrics = None if metrics is None else GatewayMetrics(metrics, self._status_if_begun)
        self._security = security
        self._peers: Peers | None = None
        self._cluster = cluster
        if cluster is not None and (created := log.created_topics()):
            names = ", ".join(topic.name for topic in created)
            raise GatewaySettingsError(
                f"clients created topics on this log when there was no cluster behind it ({names}); "
                "delete them there first, or begin another log"
            )
        self._request_log = log
        #: With what its request ids begin, which no other gateway's do.
        self.name = new_name()
        self._announce = announce
        self._is_loading = is_loading
        self._topics = TopicStore(log, topics)
        self._listener = listener
        self.ends = ends or PartitionEnds()
        self._settings = settings or GatewaySettings()
        self._thread: BackgroundThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._closed: Counter[str] = Counter()
        self._garbage = Garbage()
        self._connections: set[asyncio.Task[None]] = set()
        self._pending: PendingRequests
        self._commit: GroupCommit
        self._behind: ClusterBehind | None = None
        self.port = self._settings.port

    def start(self) -> None:
        """Listens; returns when clients can connect.

        Raises:
            GatewaySettingsError: the gateways that clients are told of don't have this one among them.
            OSError: the address can't be listened on.
            RuntimeError: it was started before.
        """
        if self._thread is not None:
            raise RuntimeError("this gateway was started before; make another one")
        self._take_address()
        if self._announce:
            # Only now: of a gateway that can't start nothing is to be on the log.
            self._topics.announce()
            keep_topics(self._request_log, () if self._cluster is not None else self._topics.configured)
        self._thread = BackgroundThread(lambda _: self._run(), "gateway")
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def _take_address(self) -> None:
        settings = self._settings
        listener = self._listener or bound_socket(settings.host, settings.port)
        port = listener.getsockname()[1]
        if settings.gateways:
            first_id = FIRST_ID if self._cluster is None else FIRST_ID_BEFORE_CLUSTER
            own = (settings.advertised_host or settings.host, settings.advertised_port or port)
            try:
                self._peers = Peers(settings.gateways, own, settings.cluster_id, first_id)
            except GatewaySettingsError:
                listener.close()
                raise
        self._listener, self.port = listener, port

    def stop(self) -> None:
        """Closes all connections and stops listening. Requests in the log stay there."""
        if self._thread is None or self._loop is None or self._stop is None:
            return
        if self._thread.is_running():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.stop(_STOP_S)
        if self._thread.is_running():
            raise RuntimeError(f"the gateway did not stop within {_STOP_S:g} s; an append to the log may hang")

    def answers(self, table: pa.Table) -> None:
        """Takes the coordinator's answers, those of other gateways too; call it from any thread.

        Args:
            table: rows with the columns ``request_id`` and ``body`` of schemas.tables.GROUP_RESPONSES, and of a log
                that splits requests ``partition``. They must be in the table already: from here they go to the clients.
        """
        loop = self._loop
        if loop is None or not table.num_rows:
            return
        prefix = self._pending.prefix
        ids = table.column("request_id").to_pylist()
        mine = [i for i, request_id in enumerate(ids) if request_id is not None and request_id.startswith(prefix)]
        if not mine:
            return
        bodies = table.column("body").take(pa.array(mine, pa.int64())).to_pylist()
        if self._request_log.splits_requests:
            partitions = table.column("partition").take(pa.array(mine, pa.int64())).to_pylist()
            parts = [(ids[i], *part) for i, *part in zip(mine, partitions, bodies, strict=True)]
            self._in_loop(lambda: self._pending.deliver_parts(parts))
            return
        pairs = [(ids[i], body) for i, body in zip(mine, bodies, strict=True)]
        self._in_loop(lambda: self._pending.deliver(pairs))

    @property
    def address(self) -> str:
        """Where it listens, HOST:PORT."""
        return f"{self._settings.host}:{self.port}"

    def set_topics(self, topics: Iterable[Topic]) -> None:
        """Changes the topics of the settings file; where all differ from before, the log gets them. From any thread."""
        self._topics.configure(topics)
        # Whoever writes the file while it is served means it.
        keep_topics(self._request_log, self._topics.configured)

    def look_at_topics(self) -> None:
        """Takes over what clients of other gateways have created and deleted. From any thread."""
        self._topics.look_again()

    def look_at_users(self) -> None:
        """Takes over what was written to the files of users and ACLs. From any thread.

        Raises:
            GatewaySettingsError: one of them can't be read; all stays as it was.
        """
        if self._security is not None:
            self._security.look_again()

    def loaded(self) -> None:
        """Lets requests go to the log from now on, those that wait first; from any thread."""
        self._in_loop(self._pending.loaded)

    def look_at_coordinator(self, *, is_away: bool) -> None:
        """Takes it whether the coordinator is away now; call it each second, from any thread."""
        self._in_loop(lambda: self._pending.look_at_coordinator(is_away=is_away))

    def trouble(self) -> str | None:
        """Returns what keeps the gateway from serving clients; None while it does."""
        if self._failure is not None:
            return f"the gateway ended: {self._failure}"
        if self._thread is None or not self._thread.is_running():
            return "the gateway does not listen"
        return None

    def unanswered(self) -> int:
        """Returns how many requests wait for the coordinator."""
        return len(self._pending) if self._loop is not None else 0

    def status(self) -> GatewayStatus:
        """Returns what the gateway is doing; from any thread, roughly."""
        return GatewayStatus(
            connections=len(self._connections),
            unanswered=len(self._pending),
            appends=self._commit.appends,
            rows=self._commit.rows,
            timed_out=self._pending.timed_out,
            shed=self._commit.shed,
            withdrawn=self._pending.withdrawn,
            closed=dict(self._closed),
            authentications={} if self._security is None else dict(self._security.admission.authenticator.counts),
        )

    def _status_if_begun(self) -> GatewayStatus | None:
        return None if self._loop is None else self.status()

    def _in_loop(self, action: Callable[[], Any]) -> None:
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(action)
        except RuntimeError:
            # The loop was closed meanwhile: nobody is connected any more.
            _log.debug("the gateway has stopped; nobody waits for this")

    def _run(self) -> None:
        try:
            with hold_gateway_lock(self._request_log):
                asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  whoever called start() gets it
            self._failure = error
            if self._ready.is_set():
                _log.exception("the gateway ended by an error")
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        settings = self._settings
        self._stop = asyncio.Event()
        self._commit = GroupCommit(
            self._request_log,
            linger_ms=settings.append_linger_ms,
            rows_max=settings.append_rows_max,
            requests_max=settings.max_in_flight_per_connection,
        )
        self._pending = PendingRequests(
            self._commit, self._request_log.partitions, settings, name=self.name, is_loading=self._is_loading
        )
        self._commit.room = self._pending.room
        if self._peers is not None:
            self._peers.start()
        node = self._node()
        self._shared = self._share(self._handler(node))
        if self._behind is not None:
            await self._behind.open()
        assert self._listener is not None  # `start` has taken the address
        server = await serve(self._listener, self._accept_any, limit=FREE_FRAME_BYTES)
        committing = asyncio.create_task(self._commit.run())
        collecting = asyncio.create_task(self._garbage.collect())
        self._loop = asyncio.get_running_loop()
        _log.info("listening on %s:%d, known to clients as %s:%d", settings.host, self.port, node.host, node.port)
        self._ready.set()
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([stopping, committing], return_when=asyncio.FIRST_COMPLETED)
            if committing.done():
                committing.result()
        finally:
            server.close()
            if self._behind is not None:
                self._behind.close()
            if self._peers is not None:
                self._peers.stop()
            for task in (*self._connections, stopping, committing, collecting):
                task.cancel()
            await asyncio.gather(*self._connections, stopping, committing, collecting, return_exceptions=True)

    def _handler(self, node: Node) -> Handler:
        """Returns what answers requests, of this log or before a cluster, authorized and measured if asked."""
        settings = self._settings
        authorizer = None
        if self._security is not None:
            authorizer = Authorizer(self._security.acls, lambda: self._topics.catalog)
        configs = GroupConfigStore(self._request_log) if self._request_log.keeps_changes else None
        handler: Handler
        if self._cluster is None:
            handler = Dispatcher(
                self._pending,
                node,
                self._topics,
                self.ends,
                group_configs=configs,
                client_assignors=settings.client_assignors,
                peers=self._peers,
                of_groups=settings.of_groups,
            )
        else:
            self._behind = ClusterBehind(
                self._cluster,
                settings,
                self._pending,
                self._topics,
                self._accept,
                authorizer=authorizer,
                peers=self._peers,
                group_configs=configs,
            )
            handler = self._behind.dispatcher
        if authorizer is not None:
            handler = AuthorizingHandler(handler, authorizer)
        handler = OperationsHandler(handler, self._security.acls if self._security is not None else lambda: None)
        return handler if self._metrics is None else MeasuredHandler(handler, self._metrics)

    def _share(self, handler: Handler) -> Shared:
        """Returns what all connections share."""
        settings, security = self._settings, self._security
        return Shared(
            settings=settings,
            handler=handler,
            budget=ByteBudget(settings.queued_bytes_max),
            in_flight=asyncio.Semaphore(settings.max_in_flight),
            on_close=self._count_close,
            admission=None if security is None else security.admission,
            allowance=None if security is None else security.quotas,
        )

    def _node(self) -> Node:
        settings = self._settings
        return Node(
            node_id=settings.node_id if self._peers is None else self._peers.own.node_id,
            host=settings.advertised_host or settings.host,
            port=settings.advertised_port or self.port,
            cluster_id=settings.cluster_id,
        )

    def _accept_any(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accept(reader, writer, self._behind.passage() if self._behind is not None else None)

    def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passage: Passage | None = None
    ) -> None:
        if len(self._connections) >= self._settings.max_connections:
            self._count_close("too many connections")
            _log.warning("a connection is refused: %d are open", len(self._connections))
            writer.transport.abort()
            return
        if self._security is not None and self._security.admission.tls is not None:
            # What comes before TLS has begun would be lost to it.
            writer.transport.pause_reading()  # type: ignore[attr-defined]
        if passage is not None and self._metrics is not None:
            passage = MeasuredPassage(passage, self._metrics)
        task = asyncio.create_task(Connection(self._shared, reader, writer, passage).run())
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    def _count_close(self, reason: str) -> None:
        self._garbage.note_gone()
        # The first words: the rest is peculiar to one connection, and these are kept for ever.
        self._closed[" ".join(reason.split()[:3])] += 1
