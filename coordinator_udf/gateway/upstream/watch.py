"""Looks again and again which brokers and topics the cluster has. What is gone is believed when it was seen twice.

A topic that is gone takes its committed offsets with it, so one wrong look must not be enough: a broker that has just
started may tell of a past, and who lost its rights is told of fewer topics.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from coordinator_udf.background import BackgroundThread, Watch
from coordinator_udf.gateway.settings import GatewaySettingsError
from coordinator_udf.gateway.upstream.cluster_state import (
    Broker,
    ClusterState,
    ServedApis,
    missing_topics,
    read_served,
    read_state,
)
from coordinator_udf.gateway.upstream.settings import CLIENT_ID, BrokerAway, UpstreamSettings, open_streams
from coordinator_udf.members.driver.connection import BrokerConnection
from coordinator_udf.protocol.requests import Topic

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: How long a look at the cluster may take, in seconds, with all that is asked in it: as Java's request.timeout.ms.
_ANSWER_S = 30.0
#: After which pause a cluster is looked for again of which no broker is there when a gateway starts, in seconds.
_AGAIN_S = 1.0
#: Every so many looks the brokers are asked what they serve, too: with looks each two seconds, twice a minute. As late
#: as that clients are told of an upgrade; half asks each broker twice as often for what hardly ever changes.
_ASK_SERVED_EACH = 15


class UpstreamCluster:
    """The cluster as it was last seen.

    Attributes:
        state: its brokers and topics; those gone since are in it until a second look agrees.
        served: what all of its brokers serve that could be asked.
    """

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        self.state = ClusterState(None, (), ())
        self.served = ServedApis({})
        self._take: Callable[[ClusterState], None] = _nothing
        self._doubted: tuple[Topic, ...] | None = None
        self._racks: dict[int, str | None] = {}
        self._looks = 0
        watch = Watch(
            lambda: asyncio.run(self._look()),
            settings.refresh_ms / 1000,
            (OSError, TimeoutError),
            "the cluster can't be asked what it has; all stays as it was",
            "what changed in the cluster could not be taken over; trying again",
            _log,
        )
        self._thread = BackgroundThread(watch, "upstream")

    def look_first(self) -> None:
        """Asks the cluster for its state once, before `start`; waits for a broker where none is there.

        Raises:
            GatewaySettingsError: no broker can be asked.
        """
        known = ", ".join(f"{host}:{port}" for host, port in self.settings.bootstrap)
        until = time.monotonic() + self.settings.start_timeout_ms / 1000
        told_before = ""
        while True:
            try:
                asyncio.run(self._look())
            except (OSError, TimeoutError) as error:
                told = f"the cluster at --upstream {known} can't be asked what it has: {error}"
                if not isinstance(error, BrokerAway) or time.monotonic() > until:
                    raise GatewaySettingsError(told) from error
                if told != told_before:
                    _log.warning("%s; trying again for %.0f s", told, until - time.monotonic())
                told_before = told
                time.sleep(_AGAIN_S)
            else:
                return

    def start(self, take: Callable[[ClusterState], None]) -> None:
        """Looks again and again in a thread, which hands on what has changed."""
        self._take = take
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread soon; what it does now it does to its end."""
        self._thread.stop(0)

    def addresses(self) -> list[tuple[str, int]]:
        """Returns where brokers are, those that are up first, in any order."""
        live = [(broker.host, broker.port) for broker in self.state.brokers]
        known = [address for address in self.settings.bootstrap if address not in live]
        random.shuffle(live)
        return live + known

    async def _look(self) -> None:
        async with asyncio.timeout(_ANSWER_S):
            seen, missing = await self._ask_any(self._ask)
            if self._looks % _ASK_SERVED_EACH == 0 or seen.brokers != self.state.brokers:
                self.served = await self._ask_served(seen.brokers)
        self._looks += 1
        topics = self._believed(seen.topics, missing)
        state = ClusterState(seen.cluster_id, seen.brokers, topics)
        if state != self.state:
            # Where this fails it is tried again at the next look.
            self._take(state)
            self.state = state

    async def _ask(self, connection: BrokerConnection) -> tuple[ClusterState, set[str]]:
        seen = await read_state(connection, self._racks)
        if not seen.brokers:
            raise BrokerAway("a broker names no brokers; it is starting")
        names = {topic.name for topic in seen.topics}
        return seen, await missing_topics(connection, [t for t in self.state.topics if t.name not in names])

    def _believed(self, seen: Iterable[Topic], missing: set[str]) -> tuple[Topic, ...]:
        """Returns the topics as they are to be taken: what was there before only goes when two looks agree."""
        old = {topic.name: topic for topic in self.state.topics}
        new = {topic.name: topic for topic in seen}
        # Not told of and not gone either: it can't be described now.
        new |= {name: topic for name, topic in old.items() if name not in new and name not in missing}
        wanted = tuple(new[name] for name in sorted(new))
        loses = [name for name, topic in old.items() if _loses(topic, new.get(name))]
        if not loses:
            self._doubted = None
        elif self._doubted != wanted:
            self._doubted = wanted
            new |= {name: old[name] for name in loses}
        else:
            _log.info("gone from the cluster, or made anew: %s", ", ".join(sorted(loses)))
            self._doubted = None
        return tuple(new[name] for name in sorted(new))

    async def _ask_any(self, ask: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        failures: list[OSError] = []
        for host, port in self.addresses():
            try:
                return await self._ask_one(host, port, ask)
            except OSError as error:
                failures.append(error)
        kind = BrokerAway if all(isinstance(error, BrokerAway) for error in failures) else ConnectionError
        raise kind("; ".join(map(str, failures)))

    async def _ask_one(self, host: str, port: int, ask: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        connection = BrokerConnection(*await open_streams(self.settings, host, port), CLIENT_ID)
        try:
            return await ask(connection)
        finally:
            connection.close()

    async def _ask_served(self, brokers: Iterable[Broker]) -> ServedApis:
        said: list[ServedApis] = []
        for broker in brokers:
            try:
                said.append(await self._ask_one(broker.host, broker.port, read_served))
            except OSError as error:
                _log.warning("broker %d can't be asked what it serves: %s", broker.node_id, error)
        if not said:
            raise ConnectionError("no broker says what it serves")
        served = said[0]
        for other in said[1:]:
            served = served.common(other)
        return served


def _loses(old: Topic, new: Topic | None) -> bool:
    return new is None or new.id != old.id or new.partitions < old.partitions


def _nothing(_: ClusterState) -> None:
    return None
