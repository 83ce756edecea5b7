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
        """Sees a member get something from the network."""

    def did(self, process: Process, now_ms: int, output: Output) -> None:
        """Sees a member do something."""

    def reached(self, connection: Connection, request: Request, now_ms: int) -> None:
        """Sees a request reach the coordinator, or a broker."""

    def answered(self, answer: Answered) -> None:
        """Sees the coordinator, or a broker, answer a request."""
