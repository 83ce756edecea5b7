"""What all shards of a broker's log share, as its lines tell it: collected stretch by stretch, in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from coordinator_udf.replay.inputs.broker_log.decided_elsewhere import Decided, decided, tells_operations
from coordinator_udf.replay.inputs.broker_log.facts import LOST, findings
from coordinator_udf.replay.inputs.broker_log.line import GROUP_APIS, Entry
from coordinator_udf.replay.inputs.broker_log.portion import group_hash
from coordinator_udf.replay.inputs.broker_log.topics import OFFSETS_TOPIC, AnsweredChange, TopicTraces, topic_changes

_TIMEOUTS: Final = ("sessionTimeoutMs", "rebalanceTimeoutMs")


class InTransaction(NamedTuple):
    """A line of a producer's transaction: a commit of offsets by a group, or (no group) one of the line's markers.

    Attributes:
        place: the line's place in the file.
    """

    place: int
    number: int
    producer_id: int
    group_hash: int | None


class Traces:
    """What a stretch of a log tells.

    Attributes:
        topics: what it tells of topics.
        changes: of topics, with the places of their lines in the file.
        decided: answers that the coordinator may not have decided.
        has_losses: whether a shard was found lost.
        longest_wait_ms: the longest that a member asked to be waited for.
        requests: how many requests the coordinator had.
        throttled: the numbers of lines whose answers were throttled.
        authorized: the numbers of lines whose answers tell what the asker may do.
        foreign: how many requests others had, by API.
    """

    def __init__(self) -> None:
        self.topics = TopicTraces()
        self.changes: list[tuple[int, AnsweredChange]] = []
        self.decided: list[Decided] = []
        self.transactions: list[InTransaction] = []
        self.has_losses = False
        self.longest_wait_ms = 0
        self.requests = 0
        self.throttled: list[int] = []
        self.authorized: list[int] = []
        self.foreign: Counter[str] = Counter()

    def note(self, entry: Entry, place: int) -> None:
        """Takes note of a line.

        Args:
            place: in the stretch.
        """
        self.topics.note(entry)
        self.changes += ((place, change) for change in topic_changes(entry))
        if entry.api not in GROUP_APIS:
            self.foreign[entry.api] += 1
            self.transactions += _markers(entry, place)
            return
        self.requests += 1
        if entry.response is not None and entry.response.get("throttleTimeMs"):
            self.throttled.append(entry.number)
        if tells_operations(entry):
            self.authorized.append(entry.number)
        by_others = decided(entry)
        if by_others is not None:
            self.decided.append(by_others)
        self.has_losses = self.has_losses or any(finding in LOST for _, finding in findings(entry))
        for name in _TIMEOUTS:
            wait = entry.request.get(name)
            if isinstance(wait, int):
                self.longest_wait_ms = max(self.longest_wait_ms, wait)
        producer_id, group_id = entry.request.get("producerId"), entry.request.get("groupId")
        if entry.api == "TxnOffsetCommit" and isinstance(producer_id, int) and isinstance(group_id, str):
            self.transactions.append(InTransaction(place, entry.number, producer_id, group_hash(group_id)))

    def join(self, later: Traces, lines: int) -> None:
        """Takes note of what a later stretch tells.

        Args:
            lines: how many lines there are before that one.
        """
        self.topics.join(later.topics)
        self.changes += ((lines + place, change) for place, change in later.changes)
        self.decided += later.decided
        self.transactions += (each._replace(place=lines + each.place) for each in later.transactions)
        self.has_losses = self.has_losses or later.has_losses
        self.longest_wait_ms = max(self.longest_wait_ms, later.longest_wait_ms)
        self.requests += later.requests
        self.throttled += later.throttled
        self.authorized += later.authorized
        self.foreign += later.foreign


def markers_of(entry: Entry) -> list[dict[str, Any]]:
    """Returns the markers of a WriteTxnMarkers that end transactions in which offsets were committed."""
    return [
        marker
        for marker in entry.request.get("markers") or ()
        if any(topic.get("name") == OFFSETS_TOPIC for topic in marker.get("topics") or ())
    ]


def _markers(entry: Entry, place: int) -> Iterator[InTransaction]:
    if entry.api == "WriteTxnMarkers":
        for marker in markers_of(entry):
            yield InTransaction(place, entry.number, marker["producerId"], None)
