"""Members as bytes on sockets, many in one process: what the benchmark of the gateway drives."""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from coordinator_udf.protocol.wire import request_bytes, split_response

#: What the address of a gateway with TLS begins with.
TLS: Final = "tls://"

_MEMBER_ID_REQUIRED = 79
_REBALANCE_IN_PROGRESS = 27
_RETRIABLE = frozenset((14, 15, 16))
_RETRY_S = 0.05


class Endpoint(NamedTuple):
    """Where to connect to, and how."""

    host: str
    port: int
    tls: ssl.SSLContext | None


def endpoint(address: str) -> Endpoint:
    """Reads HOST:PORT or ``tls://HOST:PORT``; nobody's certificate is looked at."""
    host, _, port = address.removeprefix(TLS).rpartition(":")
    context = None
    if address.startswith(TLS):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return Endpoint(host, int(port), context)


class Connection:
    """One connection, with any number of requests under way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._count = 0
        self._waiting: dict[int, tuple[str, int, asyncio.Future[dict[str, Any]]]] = {}
        self._receiving = asyncio.create_task(self._receive())

    @classmethod
    async def to(cls, address: str, client_id: str) -> Connection:
        """Connects to HOST:PORT, or to ``tls://HOST:PORT``."""
        place = endpoint(address)
        return cls(*await asyncio.open_connection(place.host, place.port, ssl=place.tls), client_id)

    def ask(self, api: str, version: int, body: Mapping[str, Any]) -> asyncio.Future[dict[str, Any]]:
        """Sends a request; its answer comes with the future."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._count += 1
        self._waiting[self._count] = (api, version, answer)
        self._writer.write(request_bytes(api, version, self._count, self._client_id, body))
        return answer

    def close(self) -> None:
        """Closes it; requests under way fail."""
        self._receiving.cancel()
        self._writer.close()

    async def _receive(self) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                frame = await self._reader.readexactly(size)
                (correlation_id,) = struct.unpack_from(">i", frame)
                api, version, answer = self._waiting.pop(correlation_id)
                answer.set_result(split_response(api, version, frame)[1])
        except (asyncio.IncompleteReadError, OSError) as error:
            for _, _, answer in self._waiting.values():
                answer.set_exception(ConnectionError(f"the coordinator closed a connection: {error}"))


class Member:
    """A member that joins, syncs and beats; when it leads, it gives each member a few bytes."""

    def __init__(self, connection: Connection, group: str, session_ms: int = 60_000) -> None:
        self._connection = connection
        self._session_ms = session_ms
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.size = 0
        self.stable_at = 0.0

    async def join(self) -> None:
        """Joins until it has an assignment of the generation it is in."""
        while not await self._once():
            pass
        self.stable_at = time.perf_counter()

    async def _once(self) -> bool:
        joined = await self._connection.ask(
            "JoinGroup",
            5,
            {
                "groupId": self.group,
                "sessionTimeoutMs": self._session_ms,
                "rebalanceTimeoutMs": 60_000,
                "memberId": self.member_id,
                "groupInstanceId": None,
                "protocolType": "consumer",
                "protocols": [{"name": "range", "metadata": ""}],
            },
        )
        code = joined["errorCode"]
        if code == _MEMBER_ID_REQUIRED:
            self.member_id = joined["memberId"]
            return False
        if code:
            return await self._again(code)
        self.member_id, self.generation = joined["memberId"], joined["generationId"]
        mine = [{"memberId": m["memberId"], "assignment": b64encode(b"1234").decode()} for m in joined["members"]]
        self.size = len(mine) or self.size
        synced = await self._connection.ask("SyncGroup", 3, {**self.identity(), "assignments": mine})
        return not synced["errorCode"] or await self._again(synced["errorCode"])

    async def _again(self, code: int) -> bool:
        if code in _RETRIABLE:
            await asyncio.sleep(_RETRY_S)
        elif code != _REBALANCE_IN_PROGRESS:
            raise RuntimeError(f"a member of {self.group} is answered error {code}")
        return False

    async def heartbeat(self) -> int:
        """Returns one heartbeat; the error code of its answer."""
        code: int = (await self._connection.ask("Heartbeat", 3, self.identity()))["errorCode"]
        return code

    async def commit(self) -> int:
        """Commits one offset; the error code of its answer."""
        answer = await self._connection.ask("OffsetCommit", 8, self.commit_body())
        code: int = answer["topics"][0]["partitions"][0]["errorCode"]
        return code

    def commit_body(self) -> dict[str, Any]:
        """Returns the body of its OffsetCommit."""
        partition = {"partitionIndex": 0, "committedOffset": 1, "committedLeaderEpoch": -1, "committedMetadata": ""}
        return {
            "groupId": self.group,
            "generationIdOrMemberEpoch": self.generation,
            "memberId": self.member_id,
            "groupInstanceId": None,
            "topics": [{"name": "t1", "partitions": [partition]}],
        }

    def identity(self) -> dict[str, Any]:
        """Returns the body of its Heartbeat."""
        return {
            "groupId": self.group,
            "generationId": self.generation,
            "memberId": self.member_id,
            "groupInstanceId": None,
        }


async def paced(rate: float, count: int, act: Callable[[int], Any]) -> list[float]:
    """Calls ``act`` so many times a second, whatever becomes of the calls (open loop).

    Returns:
        Seconds from when each call was due to its end.
    """
    started = time.perf_counter()
    taken: list[float] = []

    async def one(number: int, due: float) -> None:
        await act(number)
        taken.append(time.perf_counter() - due)

    tasks = []
    for number in range(count):
        due = started + number / rate
        if (pause := due - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*tasks)
    return taken
