"""Brings a group's committed offsets from a cluster to Muster, or back: read, compared, and only then committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from coordinator_udf.gateway.upstream.settings import CLIENT_ID, UpstreamSettings, open_streams
from coordinator_udf.members.driver.connection import BrokerConnection
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.user_errors import UserError

#: Versions with topic names that brokers since 3.0 know, as does the gateway.
_FIND_COORDINATOR: Final = 4
_LIST_GROUPS: Final = 4
_OFFSET_FETCH: Final = 8
_OFFSET_COMMIT: Final = 8

_QUIET: Final = frozenset(("Empty", "Dead"))

Place = tuple[str, int]


class MigrationError(UserError):
    """Offsets can't be brought over; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Committed:
    """An offset as a group committed it."""

    offset: int
    leader_epoch: int
    metadata: str | None


@dataclass(frozen=True, slots=True)
class Move:
    """An offset that is to be brought over.

    Attributes:
        there: what the target has; None where it has nothing.
    """

    topic: str
    partition: int
    offset: Committed
    there: Committed | None

    @property
    def is_new(self) -> bool:
        """Whether nothing is overwritten."""
        return self.there is None


class GroupCoordinator:
    """The coordinator of one group, in a cluster or behind a gateway.

    Args:
        name: what messages call it.
    """

    def __init__(self, name: str, settings: UpstreamSettings, group_id: str) -> None:
        self.name = name
        self._settings = settings
        self._group_id = group_id
        self._connection: BrokerConnection | None = None

    async def __aenter__(self) -> GroupCoordinator:
        failures = []
        for host, port in self._settings.bootstrap:
            try:
                self._connection = await self._find(host, port)
            except ConnectionError as error:
                failures.append(str(error))
            else:
                return self
        raise MigrationError(f"{self.name} can't be asked: {'; '.join(failures)}")

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    async def state(self) -> str:
        """Returns the group's state; Dead where there is no such group.

        Raises:
            MigrationError: it isn't told.
        """
        said = await self._ask("ListGroups", _LIST_GROUPS, {"statesFilter": []})
        self._check(said["errorCode"], "its groups")
        found = [entry["groupState"] for entry in said["groups"] if entry["groupId"] == self._group_id]
        return str(found[0]) if found else "Dead"

    async def committed(self) -> dict[Place, Committed]:
        """Returns all that the group has committed.

        Raises:
            MigrationError: it isn't told.
        """
        asked = {"groups": [{"groupId": self._group_id, "topics": None}], "requireStable": True}
        (group,) = (await self._ask("OffsetFetch", _OFFSET_FETCH, asked))["groups"]
        self._check(group["errorCode"], "the group's offsets")
        found: dict[Place, Committed] = {}
        for topic in group["topics"]:
            for entry in topic["partitions"]:
                self._check(entry["errorCode"], f"the offset of {topic['name']}-{entry['partitionIndex']}")
                if entry["committedOffset"] >= 0:
                    found[topic["name"], entry["partitionIndex"]] = Committed(
                        entry["committedOffset"], entry["committedLeaderEpoch"], entry["metadata"]
                    )
        return found

    async def commit(self, moves: Iterable[Move]) -> None:
        """Commits as a consumer without a group's membership, which a group without members takes.

        Raises:
            MigrationError: one of them was refused. Others may have been taken.
        """
        ordered = sorted(moves, key=lambda move: (move.topic, move.partition))
        topics = [
            {"name": name, "partitions": [_partition(move) for move in some]}
            for name, some in groupby(ordered, key=lambda move: move.topic)
        ]
        said = await self._ask(
            "OffsetCommit",
            _OFFSET_COMMIT,
            {
                "groupId": self._group_id,
                "generationIdOrMemberEpoch": -1,
                "memberId": "",
                "groupInstanceId": None,
                "topics": topics,
            },
        )
        for topic in said["topics"]:
            for entry in topic["partitions"]:
                self._check(entry["errorCode"], f"the commit of {topic['name']}-{entry['partitionIndex']}")

    async def _find(self, host: str, port: int) -> BrokerConnection:
        connection = BrokerConnection(*await open_streams(self._settings, host, port), CLIENT_ID)
        try:
            asked = {"keyType": 0, "coordinatorKeys": [self._group_id]}
            (found,) = (await connection.request("FindCoordinator", _FIND_COORDINATOR, asked))["coordinators"]
        finally:
            connection.close()
        self._check(found["errorCode"], "the group's coordinator")
        return BrokerConnection(*await open_streams(self._settings, found["host"], found["port"]), CLIENT_ID)

    async def _ask(self, api: str, version: int, body: Mapping[str, Any]) -> dict[str, Any]:
        assert self._connection is not None
        try:
            return await self._connection.request(api, version, body)
        except ConnectionError as error:
            raise MigrationError(f"{self.name} gave no answer to {api}: {error}") from error

    def _check(self, code: int, what: str) -> None:
        if code:
            name = Errors(code).name if code in set(Errors) else str(code)
            raise MigrationError(f"{self.name} doesn't tell or take {what}: {name}")


async def plan(source: GroupCoordinator, target: GroupCoordinator) -> list[Move]:
    """Returns what has to be committed at the target so that it has what the source has.

    Raises:
        MigrationError: the group has members at either, so its offsets move, or its commits would be refused.
    """
    for one in (source, target):
        state = await one.state()
        if state not in _QUIET:
            raise MigrationError(f"the group is {state} at {one.name}, expected Empty: stop its consumers first")
    here, there = await source.committed(), await target.committed()
    return [
        Move(topic, partition, found, there.get((topic, partition)))
        for (topic, partition), found in sorted(here.items())
        if there.get((topic, partition)) != found
    ]


def _partition(move: Move) -> dict[str, Any]:
    return {
        "partitionIndex": move.partition,
        "committedOffset": move.offset.offset,
        "committedLeaderEpoch": move.offset.leader_epoch,
        "committedMetadata": move.offset.metadata,
    }
