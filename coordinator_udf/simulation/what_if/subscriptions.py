"""Which topics a process of a log wanted, by name or by a pattern."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from itertools import islice

from coordinator_udf.protocol.consumer_protocol import MalformedConsumerProtocol, decode_subscription_topics
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.simulation.what_if.processes import LoggedProcess, arrived_ms


def subscriptions_of(
    process: LoggedProcess, peers: Sequence[LoggedProcess]
) -> tuple[list[tuple[float, tuple[str, ...]]], str | None]:
    """Returns the topics that a process wanted, each time that it wanted others, or its first pattern if it named none.

    One that is older than its log, which doesn't have them, wants what a peer does that wants all that it commits, else
    what it commits.
    """
    subscriptions = list(_subscriptions(process))
    if subscriptions or not process.is_older:
        return subscriptions, None if subscriptions else _first_pattern(process)
    committed = {name for entry in process.of("OffsetCommit") for name in _committed_topics(entry)}
    alike = sorted(peers, key=lambda peer: (peer is not process, peer.client_id != process.client_id))
    for peer in alike:
        for _, topics in islice(_subscriptions(peer), 1):
            if committed <= set(topics):
                return [(arrived_ms(process.entries[0]), topics)], None
        if _first_pattern(peer) is not None:
            return [], _first_pattern(peer)
    return ([(arrived_ms(process.entries[0]), tuple(sorted(committed)))] if committed else []), None


def _first_pattern(process: LoggedProcess) -> str | None:
    """Returns the pattern that a process subscribed to first, for the coordinator to match."""
    return process.entries[0].request.get("subscribedTopicRegex") or None


def _committed_topics(entry: Entry) -> Iterator[str]:
    """Yields the topics of a commit that it names."""
    yield from (topic["name"] for topic in entry.request.get("topics") or () if topic.get("name"))


def _subscriptions(process: LoggedProcess) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Yields the topics that the process wanted first, and each time others from then on."""
    last: tuple[str, ...] | None = None
    for entry in process.entries:
        topics = subscribed_topics(entry)
        if topics is not None and topics != last:
            yield arrived_ms(entry), topics
            last = topics


def subscribed_topics(entry: Entry) -> tuple[str, ...] | None:
    """Returns the topics that a request subscribes to, None if it says nothing of them."""
    if entry.api == "ConsumerGroupHeartbeat":
        names = entry.request.get("subscribedTopicNames")
        return tuple(sorted(names)) if names else None
    for protocol in entry.request["protocols"] if entry.api == "JoinGroup" else ():
        try:
            return tuple(sorted(decode_subscription_topics(base64.b64decode(protocol["metadata"]))))
        except (MalformedConsumerProtocol, ValueError):
            continue
    return None
