"""What a broker's answers say of settings by what was committed before and is no more."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry

MOST: Final = 2**31 - 1
RETENTION: Final = "offsets.retention.minutes"
CHECK: Final = "offsets.retention.check.interval.ms"

_US: Final = 1_000
_MINUTE_MS: Final = 60_000


class Bound(NamedTuple):
    """What one answer says of a setting: it is from ``least`` to ``most``. The time is in milliseconds."""

    ts: int
    name: str
    least: int
    most: int


class _Committed(NamedTuple):
    """When an offset was committed last, and when it was last seen (ms)."""

    ts: int
    seen_ts: int


class Offsets:
    """Committed offsets: how long after their commit they were gone, though nobody deleted them."""

    def __init__(self, deleted_topics: Collection[str], consumer_groups: Collection[str]) -> None:
        """Begins with nothing committed.

        Args:
            deleted_topics: names and ids of topics that were deleted, with all that was committed for them.
            consumer_groups: the groups of the consumer protocol, which DescribeGroups doesn't find.
        """
        self._deleted, self._consumer_groups = deleted_topics, consumer_groups
        self._groups: dict[str, dict[tuple[str, int], _Committed]] = {}

    def note(self, entry: Entry, answer: Mapping[str, Any]) -> Iterator[Bound]:
        """Yields what a request and its answer say, with those before it."""
        group_id = entry.request.get("groupId")
        if entry.api == "OffsetCommit":
            for place, told in _partitions(answer):
                if told.get("errorCode") == Errors.NONE and place[0] not in self._deleted:
                    own = self._groups.setdefault(str(group_id), {})
                    own[place] = _Committed(entry.log_ts, entry.log_ts)
        elif entry.api in {"OffsetDelete", "TxnOffsetCommit"}:
            for place, _ in _partitions(entry.request):
                self._groups.get(str(group_id), {}).pop(place, None)
        elif entry.api == "DeleteGroups":
            for result in answer.get("results") or ():
                if result.get("errorCode") == Errors.NONE:
                    self._groups.pop(str(result.get("groupId")), None)
        elif entry.api == "DescribeGroups":
            for group in answer.get("groups") or ():
                yield from self._described(entry, group)
        elif entry.api == "OffsetFetch":
            for group in answer.get("groups") or [{**answer, "groupId": group_id}]:
                yield from self._fetched(entry, group)

    def _described(self, entry: Entry, group: Mapping[str, Any]) -> Iterator[Bound]:
        group_id = str(group.get("groupId"))
        if group.get("groupState") != "Dead" or group_id in self._consumer_groups:
            return
        committed = self._groups.pop(group_id, {})
        if committed:
            yield from _gone(entry, max(committed.values()))

    def _fetched(self, entry: Entry, group: Mapping[str, Any]) -> Iterator[Bound]:
        own = self._groups.get(str(group.get("groupId")), {})
        for place, told in _partitions(group):
            known = own.get(place)
            if known is None or told.get("errorCode") != Errors.NONE:
                continue
            if told.get("committedOffset") == -1:
                del own[place]
                yield from _gone(entry, known)
            else:
                own[place] = known._replace(seen_ts=entry.log_ts)


def _gone(entry: Entry, known: _Committed) -> Iterator[Bound]:
    """Yields what it says that an offset is gone; less than a minute no retention is."""
    minutes = (entry.log_ts - known.ts) // _MINUTE_MS
    if minutes < 1:
        return
    yield Bound(entry.log_ts, RETENTION, 1, minutes)
    # With an interval that is no longer some check came in between, whenever the broker began to check.
    since_ms = max(known.seen_ts, known.ts + _MINUTE_MS)
    yield Bound(entry.log_ts, CHECK, 1, max(entry.log_ts - since_ms, 1))


def _partitions(body: Mapping[str, Any]) -> Iterator[tuple[tuple[str, int], Mapping[str, Any]]]:
    for topic in body.get("topics") or ():
        for partition in topic.get("partitions") or topic.get("partitionIndexes") or ():
            told = partition if isinstance(partition, dict) else {"partitionIndex": partition}
            yield (str(topic.get("name") or topic.get("topicId")), told["partitionIndex"]), told
