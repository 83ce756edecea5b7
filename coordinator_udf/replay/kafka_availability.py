"""When a shard was served, loading, or not the broker's: adopted from what was answered, as no request explains it.

A request answered NOT_COORDINATOR found its shard not owned, one answered COORDINATOR_LOAD_IN_PROGRESS found it
loading, any other answer found it served. Where that changes, control rows are put before the request.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from coordinator_udf.log_rows import control_rows
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.protocol.requests import SPANNING
from coordinator_udf.replay.compare import answer_error
from coordinator_udf.replay.kafka_line import Entry

#: A JoinGroup or SyncGroup that waited this long was answered by what happened later, not by what it found.
_WAITED_US = 500_000


class Service(Enum):
    """What a shard was to a request."""

    SERVED = "served"
    LOADING = "loading"
    NOT_OURS = "not ours"


#: The control rows that bring a shard from one to the other. A shard that is served again has lost what no record
#: holds (sessions, waiting members), so it goes through a load of what it wrote itself.
_STEPS: dict[tuple[Service, Service], tuple[str, ...]] = {
    (Service.SERVED, Service.NOT_OURS): ("Unload",),
    (Service.SERVED, Service.LOADING): ("Unload", "LoadGroup"),
    (Service.NOT_OURS, Service.LOADING): ("LoadGroup",),
    (Service.LOADING, Service.NOT_OURS): ("Unload",),
    (Service.NOT_OURS, Service.SERVED): ("Failover",),
    (Service.LOADING, Service.SERVED): ("Failover",),
}

_FOUND: dict[int, Service] = {
    Errors.NOT_COORDINATOR: Service.NOT_OURS,
    Errors.COORDINATOR_LOAD_IN_PROGRESS: Service.LOADING,
}


class Availability:
    """Follows each shard through a log's requests in order, and says which control rows belong before each."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._now = [Service.SERVED] * partitions
        #: How often a shard became unavailable.
        self.losses = 0

    def before(self, entry: Entry, partition: int, log_ts: int) -> list[dict[str, Any]]:
        """The control rows to put on a partition before this request's row there."""
        found = self._found(entry, partition)
        now = self._now[partition]
        if found is None or found is now:
            return []
        self._now[partition] = found
        self.losses += now is Service.SERVED
        return [
            row
            for api in _STEPS[now, found]
            for row in control_rows(partitions=self._partitions, log_ts=log_ts, api=api)
            if row["partition"] == partition
        ]

    def _found(self, entry: Entry, partition: int) -> Service | None:
        """What the answer says of the shard; None where it doesn't say."""
        error = self._error(entry, partition)
        if error is None:
            return None
        waited = entry.api in {"JoinGroup", "SyncGroup"} and entry.remote_us > _WAITED_US
        found = _FOUND.get(error)
        if found is not None:
            return None if waited else found
        if self._now[partition] is Service.SERVED:
            return Service.SERVED
        # A loading coordinator answers heartbeats as if all were well, and has members sync again.
        silent = (entry.api == "Heartbeat" and error == Errors.NONE) or (
            entry.api == "SyncGroup" and error == Errors.REBALANCE_IN_PROGRESS
        )
        # What is refused before the coordinator looks at its shards says nothing of them.
        early = error in {Errors.INVALID_GROUP_ID, Errors.UNSUPPORTED_VERSION, Errors.UNKNOWN_TOPIC_OR_PARTITION}
        return None if silent or early or entry.api == "ListGroups" else Service.SERVED

    def _error(self, entry: Entry, partition: int) -> int | None:
        if entry.response is None:
            return None
        if entry.api in SPANNING and not (entry.api == "OffsetFetch" and "groups" not in entry.response):
            return next(self._group_errors(entry.response, partition), None)
        return answer_error(entry.response)

    def _group_errors(self, response: dict[str, Any], partition: int) -> Iterator[int]:
        for group in [*(response.get("groups") or ()), *(response.get("results") or ())]:
            if "errorCode" in group and partition_for(group["groupId"], self._partitions) == partition:
                yield group["errorCode"]
