"""Groups of a log whose members are no consumers: there is no simulated member that does what they do.

Connect's workers (DistributedHerder, WorkerCoordinator) own connectors and tasks, hold rebalances back for
scheduled.rebalance.max.delay.ms, and join again when the config topic tells them to, which a request log doesn't show.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_udf.replay.inputs.broker_log.line import Entry

#: Kafka's ConsumerProtocol.PROTOCOL_TYPE.
_CONSUMER = "consumer"
_BY_TYPE = {"connect": "its members are Connect's workers", "sr": "its members are instances of a schema registry"}
_BY_API = {
    "ShareGroupHeartbeat": "it is a share group (KIP-932)",
    "StreamsGroupHeartbeat": "it is a group of the Streams protocol (KIP-1071)",
}


def not_simulated(entries: Iterable[Entry]) -> dict[str, str]:
    """Returns the groups that had members that are no consumers, each with why it isn't simulated, in words."""
    found: dict[str, str] = {}
    for entry in entries:
        kind = _kind(entry)
        if kind is not None and not (entry.response or {"errorCode": -1}).get("errorCode"):
            found.setdefault(entry.request.get("groupId") or "", f"{kind}, and only consumers are simulated")
    return found


def _kind(entry: Entry) -> str | None:
    if entry.api != "JoinGroup":
        return _BY_API.get(entry.api)
    name = entry.request.get("protocolType")
    if name == _CONSUMER:
        return None
    return f"{_BY_TYPE.get(str(name), 'its members are no consumers')} (protocol type {name})"
