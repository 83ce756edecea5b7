"""The gateway in the coordinator's process: clients are let in once the coordinator answers, and are told so then."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator_udf.gateway.driver_gateway import DriverGateway
from coordinator_udf.gateway.options import GatewayOptions
from coordinator_udf.log.embedded import EmbeddedLog
from coordinator_udf.log.opening import LogPlace
from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.settings.file import CoordinatorConfig
from coordinator_udf.streaming.startup import StartupPhases
from scripts.ports import free_port
from tests.gateway.alone import KNOWN
from tests.gateway.in_process import PARTITIONS
from tests.gateway.wire import HEARTBEAT, Wire
from tests.waiting import wait

CONFIG = CoordinatorConfig(Settings(), KNOWN)


class Starting:
    """A coordinator whose query has begun: what a gateway sees of it. `go_through` ends its first micro-batch."""

    def __init__(self, log: EmbeddedLog) -> None:
        self.log = log
        self.config = CONFIG
        self.query = SimpleNamespace(isActive=True, exception=lambda: None)
        self.sink = SimpleNamespace(totals=SimpleNamespace(sink_ms=0))
        self.clock_runs = threading.Event()

    def start_clock(self) -> None:
        self.clock_runs.set()

    def go_through(self) -> None:
        self.sink.totals.sink_ms = 1


class Opening:
    """A gateway that is being opened, in a thread, as the job does in its main one."""

    def __init__(self, directory: Path, *, is_new: bool) -> None:
        path = directory / "log.db"
        log = None if is_new else EmbeddedLog.create(path, PARTITIONS)
        self.port = free_port()
        self._gateway = DriverGateway(GatewayOptions(f"127.0.0.1:{self.port}"), str(directory / "tables"))
        self._gateway.reserve(LogPlace(str(path)), CONFIG)
        self.log = log or EmbeddedLog.create(path, PARTITIONS)
        self.coordinator = Starting(self.log)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        coordinator: Any = self.coordinator
        with self._gateway.open(coordinator, threading.Event(), StartupPhases()):
            self._stop.wait()

    def asked(self) -> list[str]:
        return [api for batch in self.log.read(0, self.log.end()) for api in batch.column("api").to_pylist()]

    def lets_in(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self) -> None:
        self.coordinator.go_through()
        self._stop.set()
        self._thread.join()
        self.log.close()


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:

        def make(*, is_new: bool) -> Opening:
            made = Opening(tmp_path, is_new=is_new)
            stack.callback(made.close)
            return made

        yield make


def test_it_says_that_it_listens_when_requests_go_to_the_log(gateways: Any, capsys: pytest.CaptureFixture[str]) -> None:
    gateway = gateways(is_new=False)
    wait(gateway.lets_in, "clients can wait for the coordinator")
    with Wire(gateway.port) as wire:
        # It is told that the coordinator loads, or waits until it has.
        wire.send("Heartbeat", 4, HEARTBEAT)
        assert gateway.asked() == []
        assert not gateway.coordinator.clock_runs.is_set()
        assert "listening on" not in capsys.readouterr().err
        gateway.coordinator.go_through()
        said = ""

        def listens() -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return f"listening on 127.0.0.1:{gateway.port}" in said

        wait(listens, "it says that it listens")
        assert gateway.coordinator.clock_runs.is_set()
        wire.send("Heartbeat", 4, HEARTBEAT)
        wait(lambda: "Heartbeat" in gateway.asked(), "requests go to the log")
    assert said.index("started in") < said.index("listening on")


def test_before_a_new_log_nobody_is_let_in(gateways: Any, capsys: pytest.CaptureFixture[str]) -> None:
    gateway = gateways(is_new=True)
    assert not gateway.lets_in()
    assert "listening on" not in capsys.readouterr().err
    gateway.coordinator.go_through()
    wait(gateway.lets_in, "clients are let in")
