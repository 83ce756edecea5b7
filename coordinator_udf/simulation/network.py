"""Connections between members and brokers: in order both ways, one request of a connection handled at a time."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from math import log1p
from random import Random

import msgspec

from coordinator_udf.members.outputs import Request
from coordinator_udf.simulation.chance import drawn_by_time
from coordinator_udf.simulation.plan import NetworkPlan


class Moment(msgspec.Struct, frozen=True, gc=False):
    """A time in milliseconds since the epoch, and a place among the events of that millisecond."""

    ts_ms: int
    place: float = 0


@dataclass(slots=True)
class Connection:
    """A member's connection to a node.

    Attributes:
        there_ms, back_ms: when the last message arrived on either end.
        ready_ms: from when on its broker takes requests from it, which has to answer its handshake first (ApiVersions);
            None: nothing came on it yet.
        handling: the request that the broker has in hand; those behind it wait.
        in_flight: the requests without an answer, by their numbers.
        arrived_ms: when requests arrived that aren't answered.
        lost: the requests in flight that got lost, or whose answers did, with no end of the connection to be seen.
        breaks: whether it is about to get lost, with a request that is on its way.
    """

    member: str
    node: str
    there_ms: int = 0
    back_ms: int = 0
    ready_ms: int | None = None
    handling: Request | None = None
    waiting: deque[Request] = field(default_factory=deque)
    in_flight: dict[int, Request] = field(default_factory=dict)
    arrived_ms: dict[int, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    breaks: bool = False
    is_open: bool = True

    def has_lost(self, api: str) -> bool:
        """Tells whether the answer to a request of an API that is waited for on it got lost."""
        return any(request.api == api and request.req in self.lost for request in self.in_flight.values())


class Network:
    """All connections of a world. What is drawn comes from the world's own generator.

    Attributes:
        unanswered: the members whose last question for metadata got lost.
    """

    def __init__(self, plan: NetworkPlan, draws: Random) -> None:
        self._plan = plan
        self._draws = draws
        self._salt = draws.getrandbits(32)
        self._until_loss = self._draw_loss()
        #: By member and node.
        self._connections: defaultdict[str, dict[str, Connection]] = defaultdict(dict)
        self.unanswered: set[str] = set()

    def connection(self, member: str, node: str) -> Connection:
        """Returns the member's connection to a node, a new one where there is none."""
        own = self._connections[member]
        found = own.get(node)
        if found is None:
            found = own[node] = Connection(member, node)
        return found

    def close(self, member: str, node: str) -> Connection | None:
        """Closes a connection; what is in flight on it never arrives. Returns it, or None where there is none."""
        closed = self._connections[member].pop(node, None)
        if closed is not None:
            closed.is_open = False
        return closed

    def connections(self, member: str) -> list[Connection]:
        """Returns all connections of a member."""
        return list(self._connections[member].values())

    def close_all(self, member: str) -> list[Connection]:
        """Closes all connections of a member."""
        return [closed for one in self.connections(member) if (closed := self.close(member, one.node)) is not None]

    def has_lost(self, member: str, api: str) -> bool:
        """Tells whether a member waits for the answer to a request of an API that got lost."""
        return any(connection.has_lost(api) for connection in self._connections[member].values())

    def is_calm(self, now_ms: int, members: Collection[str]) -> bool:
        """Tells whether all that some members have in flight is on its way, and takes no longer than mostly."""
        latest_ms = now_ms + self._plan.latency_ms[1]
        return self.unanswered.isdisjoint(members) and all(
            connection.there_ms <= latest_ms
            and connection.back_ms <= latest_ms
            and not connection.breaks
            and connection.lost.isdisjoint(connection.in_flight)
            for member in members
            for connection in self._connections[member].values()
        )

    def send(self, connection: Connection, request: Request, now_ms: int) -> Moment | None:
        """Puts a request on its way. Returns when it arrives; None if it never does, without a sign of it."""
        connection.in_flight[request.req] = request
        connection.there_ms = max(connection.there_ms, now_ms + self.latency_ms(connection.member, now_ms))
        return Moment(connection.there_ms)

    def answer(self, connection: Connection, request: Request, now_ms: int) -> Moment | None:
        """Puts an answer on its way. Returns when it arrives; None if it never does, without a sign of it."""
        connection.back_ms = max(connection.back_ms, now_ms + self.latency_ms(connection.member, now_ms, is_back=True))
        return Moment(connection.back_ms)

    def times_out(self, connection: Connection, request: Request, now_ms: int) -> Moment:
        """Returns when a member gives up a request that it sends now."""
        return Moment(now_ms + request.timeout_ms)

    def metadata(self, member: str, now_ms: int) -> Moment | None:
        """Returns when a member learns of the cluster that asks for it now, if nothing is in the way; None: never."""
        return Moment(now_ms + 2 * self.latency_ms(member, now_ms))

    def is_metadata_lost(self, member: str, now_ms: int) -> bool:
        """Tells whether a connection gets lost with a question for metadata that is sent now.

        It hangs on the time only: how many there are of them in a stretch that is left out, nobody knows.
        """
        if self._plan.loss <= 0:
            return False
        return drawn_by_time(self._salt, f"metadata of {member}", now_ms) / 2**32 < self._plan.loss

    def latency_ms(self, member: str, now_ms: int, *, is_back: bool = False) -> int:
        """Draws how long a message takes that is sent now. It hangs on the time only, not on what was drawn before."""
        low, high = self._plan.latency_ms
        if low == high:
            return low
        return low + drawn_by_time(self._salt, member, now_ms * 2 + is_back) % (high - low + 1)

    def put_off(self, by_ms: int, members: Collection[str]) -> None:
        """Lets everything that is on its way to or from some members be so much later."""
        for member in members:
            for connection in self._connections[member].values():
                connection.there_ms += by_ms
                connection.back_ms += by_ms
                for req in connection.arrived_ms:
                    connection.arrived_ms[req] += by_ms

    def is_lost(self) -> bool:
        """Tells whether a connection gets lost with a request that is sent now."""
        if self._until_loss is None:
            return False
        self._until_loss -= 1
        if self._until_loss:
            return False
        self._until_loss = self._draw_loss()
        return True

    @property
    def requests_before_loss(self) -> int | None:
        """How many requests arrive before a connection gets lost with one; None if none ever does."""
        return None if self._until_loss is None else self._until_loss - 1

    def leave_out(self, requests: int) -> None:
        """Counts requests that aren't simulated, fewer than come before the next loss."""
        if self._until_loss is not None:
            self._until_loss -= requests

    def _draw_loss(self) -> int | None:
        """Draws which of the next requests is the first to get lost: each is with the same chance."""
        if self._plan.loss <= 0:
            return None
        if self._plan.loss >= 1:
            return 1
        return 1 + int(log1p(-self._draws.random()) / log1p(-self._plan.loss))
