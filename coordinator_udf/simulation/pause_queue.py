"""What waits for shards of a coordinator that stand still, and what of it comes before the timers that were due."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from coordinator_udf.groups.model.timers import NEVER_MS
from coordinator_udf.simulation import events as e
from coordinator_udf.simulation.agenda import Agenda
from coordinator_udf.simulation.coordinator import SimulatedCoordinator
from coordinator_udf.simulation.network import Connection


class _Waiting(NamedTuple):
    shard: int
    process: str
    handle: Callable[[], None]


class PauseQueue:
    """What waits, in order.

    When a broker goes on that stood still, it is chance for each member, and more so for each pause, whether what it
    sent is handled first or its session ends that was over meanwhile. Measured with Kafka 4.3.1, 12 members of
    librdkafka and pauses of a second more than a session: of a classic group 12, 9, 11, 12, 12 and 0 members were out,
    of one of KIP-848 0, 2, 12, 0, 5 and 0.
    """

    def __init__(
        self, coordinator: SimulatedCoordinator, agenda: Agenda, handshake_ms: int, chance: Callable[[str], float]
    ) -> None:
        """Makes an empty one.

        Args:
            handshake_ms: how long a new connection's handshake takes.
            chance: tells a number from 0 to 1, the same for the same time and name.
        """
        self._coordinator = coordinator
        self._agenda = agenda
        self._handshake_ms = handshake_ms
        self._chance = chance
        self._waiting: list[_Waiting] = []
        #: The connections on which nothing was sent yet, for their brokers stand still.
        self._opening: list[Connection] = []

    def is_ready(self, connection: Connection) -> bool:
        """Tells whether a broker takes requests from a connection on which one has arrived."""
        now_ms = self._agenda.now_ms
        if connection.ready_ms is None:
            stands_still = self._coordinator.stands_still(connection.waiting[0])
            connection.ready_ms = NEVER_MS if stands_still else now_ms
            if stands_still:
                self._opening.append(connection)
        return connection.ready_ms <= now_ms

    def open_connections(self) -> None:
        """Lets connections be ready as soon as their handshakes are over whose brokers don't stand still any more."""
        opening, self._opening = self._opening, []
        for connection in opening:
            if self._coordinator.stands_still(connection.waiting[0]):
                self._opening.append(connection)
            elif connection.is_open:
                connection.ready_ms = self._agenda.now_ms + self._handshake_ms
                self._agenda.at(connection.ready_ms, e.NextRequest(connection))

    def add(self, shard: int, process: str, handle: Callable[[], None]) -> None:
        """Takes what a process sent, or an administrator for it; ``handle`` has its shard handle it."""
        self._waiting.append(_Waiting(shard, process, handle))

    def take_what_precedes_timers(self, shard: int) -> list[Callable[[], None]]:
        """Takes what a shard that goes on handles first: in one pause of three nothing, in one all."""
        share = 3 * self._chance("pause") - 1
        first: list[_Waiting] = []
        others: list[_Waiting] = []
        for one in self._waiting:
            precedes = one.shard == shard and self._chance(f"pause {one.process}") < share
            (first if precedes else others).append(one)
        self._waiting = others
        return [one.handle for one in first]

    def take_all(self) -> list[Callable[[], None]]:
        """Takes all of it."""
        taken, self._waiting = self._waiting, []
        return [one.handle for one in taken]
