"""What strangers may try at a locked gateway's door, over real connections, and what it costs it and its clients.

``scripts/attack --connections 5000`` starts a gateway process and says of each attack how many got in, how long a
client that is in already waited for its answers meanwhile, and how much memory the gateway had before, at its peak,
and some seconds after. `fuzz` has frames of all kinds, a million of them.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import signal
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.protocol.wire import request_bytes, split_response
from scripts.ports import free_port
from tests.conftest import ROOT
from tests.gateway.in_process import PARTITIONS
from tests.gateway.security.locked import PASSWORDS, Locked
from tests.waiting import wait

#: How many connections of an attack are opened a turn.
_AT_ONCE: Final = 50
#: How often the client that is in asks, in seconds.
_ASK_EACH_S: Final = 0.05
#: How long connections that say no more are held, and after which time the memory is looked at again, in seconds.
_HELD_S, _AFTER_S = 12.0, 15.0

_LENGTH: Final = struct.Struct(">i")
_HUGE: Final = b"x" * 400_000

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Door(NamedTuple):
    """Where the gateway is, and whose certificates are believed.

    Attributes:
        held_s: how long connections that say no more are held.
    """

    port: int
    ca: str
    held_s: float = _HELD_S

    def tls(self) -> ssl.SSLContext:
        """What an honest client begins with."""
        return ssl.create_default_context(cafile=self.ca)


class Client:
    """A client over TLS that sends what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, door: Door, tls: ssl.SSLContext | None = None) -> Client:
        """A client that has shaken hands."""
        context = tls or door.tls()
        return cls(*await asyncio.open_connection("127.0.0.1", door.port, ssl=context, server_hostname="localhost"))

    async def ask(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request. Raises EOFError where the other side closed."""
        self._writer.write(request_bytes(api, version, 1, "attack", body))
        (size,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        return split_response(api, version, await self._reader.readexactly(size))[1]

    async def authenticate(self, mechanism: str, token: bytes, handshake: int = 1) -> bool:
        """Whether it is let in by one message."""
        if (await self.ask("SaslHandshake", handshake, {"mechanism": mechanism}))["errorCode"]:
            return False
        said = await self.ask("SaslAuthenticate", 2, {"authBytes": b64encode(token).decode()})
        return bool(said["errorCode"] == 0)

    async def raw(self, data: bytes) -> bool:
        """Whether anything comes back."""
        self._writer.write(data)
        return bool(await self._reader.read(1))

    def close(self) -> None:
        self._writer.transport.abort()


def hello(*, old: bool = False) -> bytes:
    """The first bytes of a TLS client; of an old one they offer TLS 1.0 and 1.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if old:
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


async def _hold(door: Door, count: int, say: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> int:
    """Opens connections, says something by each, and holds them."""
    held: list[Streams] = []

    async def one() -> None:
        with suppress(OSError):
            held.append(await asyncio.open_connection("127.0.0.1", door.port))
            await say(held[-1][1])

    for first in range(0, count, _AT_ONCE):
        await asyncio.gather(*(one() for _ in range(min(_AT_ONCE, count - first))))
    await asyncio.sleep(door.held_s)
    for _, writer in held:
        writer.transport.abort()
    return 0


async def _say_nothing(_: asyncio.StreamWriter) -> None:
    pass


async def half_open(door: Door, count: int) -> int:
    return await _hold(door, count, _say_nothing)


async def hello_and_silence(door: Door, count: int) -> int:
    first = hello()

    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(first)

    return await _hold(door, count, say)


async def slow_hello(door: Door, count: int) -> int:
    """A handshake of which a byte comes now and then."""
    first = hello()

    async def drip(writer: asyncio.StreamWriter) -> None:
        for byte in first:
            if writer.transport.is_closing():
                return
            writer.write(bytes([byte]))
            await asyncio.sleep(0.1)

    dripping: list[asyncio.Task[None]] = []

    async def say(writer: asyncio.StreamWriter) -> None:
        dripping.append(asyncio.create_task(drip(writer)))

    inside = await _hold(door, count, say)
    for task in dripping:
        task.cancel()
    return inside


async def _each(count: int, attempt: Callable[[int], Awaitable[bool]]) -> int:
    """How many attempts got in."""

    async def one(number: int) -> bool:
        try:
            return await attempt(number)
        except (OSError, EOFError):
            return False

    inside = 0
    for first in range(0, count, _AT_ONCE):
        inside += sum(await asyncio.gather(*(one(number) for number in range(first, min(first + _AT_ONCE, count)))))
    return inside


async def huge_tokens(door: Door, count: int) -> int:
    tls = door.tls()
    tokens = [("PLAIN", b"\0alice\0" + _HUGE), ("SCRAM-SHA-512", b"n,,n=alice,r=" + _HUGE), ("PLAIN", b"\0" * 400_000)]

    async def attempt(number: int) -> bool:
        client = await Client.to(door, tls)
        try:
            if number % 4 == 3:
                # A frame that announces a gibibyte.
                return await client.raw(_LENGTH.pack(2**30) + _HUGE)
            return await client.authenticate(*tokens[number % 4])
        finally:
            client.close()

    return await _each(count, attempt)


async def wrong_passwords(door: Door, count: int) -> int:
    tls = door.tls()

    async def attempt(number: int) -> bool:
        client = await Client.to(door, tls)
        try:
            user = ("alice", "nobody")[number % 2]
            return await client.authenticate("PLAIN", f"\0{user}\0{number}".encode())
        finally:
            client.close()

    return await _each(count, attempt)


async def downgrades(door: Door, count: int) -> int:
    """Older TLS, none at all, mechanisms that aren't enabled, a handshake that asks for bare tokens, and no login."""
    old = hello(old=True)
    tls = door.tls()
    password = b"\0alice\0" + PASSWORDS["alice"].encode()
    metadata: dict[str, Any] = {"topics": None}

    async def plain(data: bytes) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(data)
        said = await reader.read(8)
        writer.transport.abort()
        # An alert refuses; a handshake's record (22) or a frame would go on.
        return said[:1] not in (b"", b"\x15")

    async def attempt(number: int) -> bool:
        kind = number % 5
        if kind == 0:
            return await plain(old)
        if kind == 1:
            return await plain(request_bytes("Metadata", 1, 1, "attack", metadata))
        client = await Client.to(door, tls)
        try:
            if kind == 2:
                return await client.authenticate("GSSAPI", password)
            if kind == 3:
                return await client.authenticate("PLAIN", password, handshake=0)
            return bool(await client.ask("Metadata", 1, metadata))
        finally:
            client.close()

    return await _each(count, attempt)


ATTACKS: Final = {
    "connections that say nothing": (half_open, 1.0),
    "a TLS hello, then silence": (hello_and_silence, 1.0),
    "a TLS handshake byte by byte": (slow_hello, 0.2),
    "huge SASL tokens and frames": (huge_tokens, 0.1),
    "wrong passwords": (wrong_passwords, 0.2),
    "downgrades of TLS and SASL, no login": (downgrades, 0.2),
}


def _attack(name: str, door: Door, count: int) -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return asyncio.run(ATTACKS[name][0](door, count))


@dataclass
class Outcome:
    """What came of an attack: who got in, answers of the client that was in (seconds), memory (MiB)."""

    name: str
    count: int
    inside: int
    answered_s: list[float]
    before_mib: int
    peak_mib: int
    after_mib: int

    def __str__(self) -> str:
        answered = sorted(self.answered_s)
        p50, p99 = (answered[int(share * (len(answered) - 1))] for share in (0.5, 0.99))
        memory = f"{self.before_mib:>6} {self.peak_mib:>6} {self.after_mib:>6}"
        return f"{self.name:<38} {self.count:>6} {self.inside:>6} {p50:>7.3f} {p99:>7.3f} {memory}"


HEADER: Final = (
    f"{'attack':<38} {'count':>6} {'got in':>6} {'p50 s':>7} {'p99 s':>7} {'MiB':>6} {'peak':>6} {'after':>6}"
)


@contextmanager
def locked_gateway(directory: Path) -> Iterator[tuple[Door, int]]:
    """A gateway process behind TLS and SASL, and its process id. Nobody coordinates: what it answers is its own."""
    locked = Locked(directory)
    locked.security("SASL_SSL")
    EmbeddedLog.create(directory / "log", PARTITIONS).close()
    port = free_port()
    command = [sys.executable, str(ROOT / "jobs" / "gateway.py"), "--listen", f"127.0.0.1:{port}"]
    command += ["--root", str(directory), "--security", str(locked.file)]
    with (directory / "gateway.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        told = directory / "gateway.log"
        wait(lambda: b"listening on" in told.read_bytes() or process.poll() is not None, "it listens", told.read_text)
        assert process.poll() is None, told.read_text()
        yield Door(port, str(locked.ca)), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def memory_mib(pid: int, what: str = "VmRSS") -> int:
    """What a process has in memory, or had at its peak (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) // 1024


async def under_attack(door: Door, pid: int, name: str, count: int, after_s: float = _AFTER_S) -> Outcome:
    """Attacks while a client that is in asks on and on."""
    honest = await Client.to(door)
    assert await honest.authenticate("PLAIN", b"\0alice\0" + PASSWORDS["alice"].encode())
    before = memory_mib(pid)
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    answered: list[float] = []
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        attacking = pool.submit(_attack, name, door, count)
        while not attacking.done():
            began = time.perf_counter()
            await honest.ask("Metadata", 1, {"topics": None})
            answered.append(time.perf_counter() - began)
            await asyncio.sleep(_ASK_EACH_S)
    peak = memory_mib(pid, "VmHWM")
    await asyncio.sleep(after_s)
    honest.close()
    return Outcome(name, count, attacking.result(), answered, before, peak, memory_mib(pid))


def main() -> None:
    parser = argparse.ArgumentParser(description="Attacks a locked gateway over real connections.")
    parser.add_argument("--connections", type=int, default=5_000, help="of the largest attacks")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-attack-") as directory, locked_gateway(Path(directory)) as found:
        print(HEADER, flush=True)
        inside = 0
        for name, (_, share) in ATTACKS.items():
            outcome = asyncio.run(under_attack(*found, name, max(int(asked.connections * share), 1)))
            print(f"{outcome}   load {os.getloadavg()[0]:.1f}", flush=True)
            inside += outcome.inside
    sys.exit(1 if inside else 0)


if __name__ == "__main__":
    main()
