"""What a connection and those around it expect of each other: who answers, who lets in, who counts, who passes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from coordinator_udf.gateway.server.limits import ByteBudget, HeldBytes
from coordinator_udf.gateway.settings import GatewaySettings
from coordinator_udf.protocol.wire import RequestHeader


class Closed(Exception):
    """The connection is to be closed, for this reason; ``quietly`` where the client did nothing wrong."""

    def __init__(self, reason: str, *, quietly: bool = False) -> None:
        super().__init__(reason)
        self.quietly = quietly


#: Makes a body. It is made when it is to be written and not before, so that what waits is small.
MakeBody = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ToldBody:
    """Makes a body of the JSON in which the coordinator told it; that of most answers is the same."""

    text: str

    def __call__(self) -> Mapping[str, Any]:
        """Makes it."""
        body: Mapping[str, Any] = msgspec.json.decode(self.text)
        return body


class Incoming(NamedTuple):
    """A request as it came.

    Attributes:
        body: for use at once; who needs it later calls ``read_again``, which keeps the frame and not what it became.
        host: the client's address as Kafka writes it: a slash first.
        held: the bytes of the request in the budget. They are released when it is answered, or before.
        lane: stands for the connection; its requests stay in their order.
        principal: whose connection it is; None where nobody asks for that.
    """

    header: RequestHeader
    body: Mapping[str, Any]
    read_again: MakeBody
    host: str
    held: HeldBytes
    lane: object
    principal: str | None = None


class Started(NamedTuple):
    """A request under way.

    Attributes:
        answer: what makes the body, in due time.
        version: the version in which it is to be written.
        in_turn: the next request is not looked at before the answer is there. Kafka does so with every request of a
            connection; for those that wait for others it makes a difference to what comes behind.
        cut_short: lets the answer come now, as far as it is; None where it can't.
    """

    answer: asyncio.Future[MakeBody]
    version: int
    in_turn: bool
    cut_short: Callable[[], None] | None = None


class Handler(Protocol):
    """What starts a request: it returns at once, and the answer comes later."""

    def __call__(self, incoming: Incoming) -> Started:
        """Starts one request whose API and version are served, or an ApiVersions of whatever version."""

    def is_served(self, api: str | None, version: int) -> bool:
        """Returns whether a request of that API and version can be answered by more than UNSUPPORTED_VERSION."""


Write = Callable[[bytes], Awaitable[None]]


class Passed(NamedTuple):
    """A request that somebody else answers.

    Attributes:
        answer: writes its answer, the length first, when its turn has come; None where there will be none.
    """

    answer: Callable[[Write], Awaitable[None]] | None


class Passage(Protocol):
    """The way of one connection's requests to somebody else."""

    async def pass_on(self, header: RequestHeader, frame: bytes, principal: str | None, host: str) -> Passed | None:
        """Sends a request on, its bytes as they are; returns None where it is to be handled here.

        Args:
            principal: whose request it is; None where nobody asks for that.
            host: the client's address as Kafka writes it: a slash first.

        Raises:
            MalformedFrame: it can't be told where it goes.
            Closed: it may not be asked.
            OSError: it can't be sent on.
        """

    def close(self) -> None:
        """Lets go of what is open."""


class Stranger(NamedTuple):
    """A connection of which it isn't known yet whose it is.

    Attributes:
        write: writes bytes and waits until they are on their way.
        answer: makes the answer to an ApiVersions, of whatever version, from its frame.
    """

    peer: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    write: Write
    answer: Callable[[bytes], Awaitable[bytes]]


class Session(Protocol):
    """The time in which it is known who is at the other end of a connection.

    Attributes:
        principal: ``User:NAME``.
    """

    principal: str

    def concerns(self, frame: bytes) -> bool:
        """Tells whether a request is about who somebody is; every request is asked for.

        Raises:
            Closed: the session is over.
        """

    async def answer(self, frame: bytes) -> Passed:
        """Answers a request that is about who somebody is.

        Raises:
            Closed: it can't be answered.
        """


class Admission(Protocol):
    """Finds out whose a connection is, before anything else is done with it."""

    async def admit(self, stranger: Stranger) -> Session:
        """Returns the session of who is at the other end.

        Raises:
            Closed: it doesn't get in.
            OSError: it went.
        """


class Allowance(Protocol):
    """Counts what principals take."""

    def throttle_ms(self, principal: str) -> int:
        """Counts a request; returns for how long who sent it is to wait."""

    def enter(self, principal: str) -> bool:
        """Counts a connection; returns whether there may be one more. Who gets True calls `leave` in the end."""

    def leave(self, principal: str) -> None:
        """Counts that a connection is closed."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections of a gateway share."""

    settings: GatewaySettings
    handler: Handler
    budget: ByteBudget
    in_flight: asyncio.Semaphore
    on_close: Callable[[str], None]
    admission: Admission | None = None
    allowance: Allowance | None = None
