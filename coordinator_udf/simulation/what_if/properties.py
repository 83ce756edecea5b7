"""How a member's process was set up: Kafka's consumer properties, as far as its requests tell them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil
from statistics import median, median_low
from typing import Any

from coordinator_udf.members.config import MemberConfig
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.what_if.processes import LoggedProcess, answered_ms, arrived_ms

#: The Java assignors by the names under which members vote for them.
STRATEGIES = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
#: What a process had of which the log doesn't tell it: Kafka's defaults.
_DEFAULTS = MemberConfig(group_id="-")
#: A JoinGroup may take max.poll.interval.ms and so much more in any case.
_JOIN_LAPSE_MS = 5_000
#: What a consumer asks for that is set up with Kafka's defaults.
_DEFAULT_JOIN: Mapping[str, Any] = {
    "sessionTimeoutMs": _DEFAULTS.session_timeout_ms,
    "rebalanceTimeoutMs": _DEFAULTS.max_poll_interval_ms,
    "protocols": [{"name": "range"}],
}
#: librdkafka sends a heartbeat as soon as its SyncGroup is answered, which tells nothing of its interval.
_AT_ONCE_MS = 100


def asks_for(process: LoggedProcess, peers: Sequence[LoggedProcess]) -> tuple[LoggedProcess, Mapping[str, Any]] | None:
    """Returns the request that tells how a process is set up, and whose it is; None if there is none.

    Of one that is older than its log, and never asked again, it is another's: first of its client id, then of any peer.
    """
    api = "ConsumerGroupHeartbeat" if _is_consumer(process, peers) else "JoinGroup"
    others = [peer for peer in peers if peer is not process] if process.is_older else []
    for one in [process, *sorted(others, key=lambda peer: peer.client_id != process.client_id)]:
        if api == "JoinGroup":
            asked = (_accepted_joins(one) or one.of(api))[-1:]
        else:
            asked = [entry for entry in one.of(api) if entry.request["rebalanceTimeoutMs"] >= 0 or not one.is_older][:1]
        if asked:
            return one, asked[0].request
    return None


def _is_consumer(process: LoggedProcess, peers: Sequence[LoggedProcess]) -> bool:
    """Returns whether a process speaks KIP-848, of one that only commits whether any of its peers does."""
    if process.of("JoinGroup", "SyncGroup", "Heartbeat"):
        return False
    return any(one.of("ConsumerGroupHeartbeat") for one in [process, *peers])


def instance_id_of(process: LoggedProcess) -> str | None:
    """Returns the instance id of a static member."""
    named = (entry.request.get("groupInstanceId") or entry.request.get("instanceId") for entry in process.entries)
    return next(filter(None, named), None)


def properties_of(
    process: LoggedProcess, peers: Sequence[LoggedProcess], commit_ms: int | None, unknown: list[str]
) -> dict[str, Any]:
    """Returns the consumer properties that a process had.

    Args:
        peers: the processes of its group.
        commit_ms: the interval of its automatic commits, None if there are none.
        unknown: takes in words what its requests don't tell.
    """
    properties: dict[str, Any] = {
        "enable.auto.commit": commit_ms is not None,
        "heartbeat.interval.ms": _heartbeat_ms(process, unknown),
        "metadata.max.age.ms": _DEFAULTS.metadata_max_age_ms,
    }
    if commit_ms is not None:
        properties["auto.commit.interval.ms"] = commit_ms
    asked = asks_for(process, peers)
    if not _is_consumer(process, peers):
        request = _DEFAULT_JOIN if asked is None else asked[1]
        names = [protocol["name"] for protocol in request["protocols"]]
        session_ms = _possible(process, "session.timeout.ms", request["sessionTimeoutMs"], 2, unknown)
        polls_ms = request.get("rebalanceTimeoutMs", session_ms)
        properties |= {
            "heartbeat.interval.ms": min(properties["heartbeat.interval.ms"], max(1, session_ms // 3)),
            "session.timeout.ms": session_ms,
            "max.poll.interval.ms": _possible(process, "max.poll.interval.ms", polls_ms, 1, unknown),
            "partition.assignment.strategy": [STRATEGIES.get(name, STRATEGIES["range"]) for name in names],
        }
        foreign = [name for name in names if name not in STRATEGIES]
        if foreign:
            unknown.append(f"{process.name} votes for {', '.join(foreign)}, which is simulated as range")
    else:
        first = _DEFAULT_JOIN if asked is None else asked[1]
        polls_ms = _possible(process, "max.poll.interval.ms", first["rebalanceTimeoutMs"], 1, unknown)
        properties |= {"group.protocol": "consumer", "max.poll.interval.ms": polls_ms}
        if first.get("serverAssignor"):
            properties["group.remote.assignor"] = first["serverAssignor"]
    instance_id = instance_id_of(process)
    if instance_id:
        properties["group.instance.id"] = instance_id
    return properties | _request_timeout(process, properties)


def _request_timeout(process: LoggedProcess, properties: Mapping[str, Any]) -> dict[str, int]:
    """Returns the request timeout of a client that waited longer for an answer than one of Kafka's does by default."""
    waited_ms = max((answered_ms(entry) - arrived_ms(entry) for entry in process.entries), default=0.0)
    if waited_ms <= max(_DEFAULTS.request_timeout_ms, properties["max.poll.interval.ms"] + _JOIN_LAPSE_MS):
        return {}
    return {"request.timeout.ms": ceil(waited_ms / 10_000) * 10_000}


def _accepted_joins(process: LoggedProcess) -> list[Entry]:
    """Returns the requests to join that were right in themselves, whether or not they were to come again."""
    right = {Errors.NONE, Errors.MEMBER_ID_REQUIRED}
    return [entry for entry in process.of("JoinGroup") if (entry.response or {}).get("errorCode") in right]


def accepted_session_ms(process: LoggedProcess) -> int | None:
    """Returns the session timeout that a classic member was let in with, in milliseconds; None if it never was."""
    joins = _accepted_joins(process)
    return int(joins[-1].request["sessionTimeoutMs"]) if joins else None


def _possible(process: LoggedProcess, name: str, asked: int, least: int, unknown: list[str]) -> int:
    """Returns a property as a request tells it, or the least value that a client of Kafka's could have."""
    if asked >= least:
        return asked
    unknown.append(f"{process.name} asks for {name} {asked}, which no client of Kafka's can have; {least} is taken")
    return least


def _heartbeat_ms(process: LoggedProcess, unknown: list[str]) -> int:
    beats = process.of("ConsumerGroupHeartbeat")
    told = [entry.response or {"errorCode": -1} for entry in beats]
    intervals = [body["heartbeatIntervalMs"] for body in told if not body["errorCode"] and body["heartbeatIntervalMs"]]
    if intervals:
        return int(intervals[-1])
    gaps = _gaps(process.of("Heartbeat")) or list(_first_gaps(process))
    if not gaps:
        unknown.append(f"the heartbeat interval of {process.name} is taken to be Kafka's default")
        return _DEFAULTS.heartbeat_interval_ms
    # Of few there may be as many that a rebalance or a silent broker stands between.
    return _rounded(median_low(gaps))


def _first_gaps(process: LoggedProcess) -> Iterator[float]:
    """Yields how long after a SyncGroup the next heartbeat came, of clients that don't send one at once."""
    for earlier, later in pairwise(process.of("SyncGroup", "Heartbeat")):
        gap_ms = arrived_ms(later) - arrived_ms(earlier)
        if earlier.api == "SyncGroup" and later.api == "Heartbeat" and gap_ms >= _AT_ONCE_MS:
            yield gap_ms


def auto_commit_interval_ms(process: LoggedProcess, peers: Sequence[LoggedProcess]) -> int | None:
    """Returns the interval of automatic commits, None if there are no regular ones.

    Of a process with two commits alone its peers tell whether what is between them is one.
    """
    gaps = _gaps(process.of("OffsetCommit"))
    if len(gaps) == 1:
        of_peers = {_rounded(median(found)) for peer in peers if len(found := _gaps(peer.of("OffsetCommit"))) > 1}
        return max(100, _rounded(gaps[0])) if _rounded(gaps[0]) in of_peers else None
    return max(100, _rounded(median(gaps))) if gaps else None


def _gaps(entries: Sequence[Entry]) -> list[float]:
    return [arrived_ms(later) - arrived_ms(earlier) for earlier, later in pairwise(entries)]


def _rounded(interval_ms: float) -> int:
    """Returns an interval as a person would have set it: timers are never early and mostly a little late."""
    step = 100 if interval_ms < 2_000 else 500
    return max(step, int((interval_ms + 0.3 * step) // step) * step)
