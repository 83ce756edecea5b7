"""What may look on while a world goes on."""

from __future__ import annotations

from typing import Protocol

from coordinator_udf.members.inputs import Input
from coordinator_udf.members.outputs import Output, Request
from coordinator_udf.simulation.coordinator import Answered
from coordinator_udf.simulation.network import Connection
from coordinator_udf.simulation.process import Process


class Watcher(Protocol):
    """Is told of each event at its time, in milliseconds since the epoch."""

    def got(self, process: Process, now_ms: int, event: Input) -> None:
        """A member gets something from the network."""

    def did(self, process: Process, now_ms: int, output: Output) -> None:
        """A member does something."""

    def reached(self, connection: Connection, request: Request, now_ms: int) -> None:
        """A request reaches the coordinator, or a broker."""

    def answered(self, answer: Answered) -> None:
        """The coordinator, or a broker, answers a request."""
