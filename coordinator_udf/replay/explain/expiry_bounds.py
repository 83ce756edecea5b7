"""What a broker's answers say of settings by what was there before and is no more: sessions and committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry

MOST: Final = 2**31 - 1
SESSION: Final = "group.consumer.session.timeout.ms"
RETENTION: Final = "offsets.retention.minutes"
CHECK: Final = "offsets.retention.check.interval.ms"

_US: Final = 1_000
_MINUTE_MS: Final = 60_000
#: A member that was silent for less than so many heartbeats was dropped for another reason than its silence.
_SILENT_BEATS: Final = 3
#: A member's session began again when its request was handled; the next one was handled so late at most (ms).
_LATE_MS: Final = 250
#: So long after a member is gone others may be told of no new epoch yet: a new assignment is computed so long after the
#: one before at the latest (group.consumer.assignment.interval.ms' default), in milliseconds.
_ASSIGNED_LATE_MS: Final = 1_000

#: A topic's id, and a partition.
_Place = tuple[str, int]


class Bound(NamedTuple):
    """What one answer says of a setting: it is from ``least`` to ``most``. The time is in milliseconds."""

    ts: int
    name: str
    least: int
    most: int


class _Heard(NamedTuple):
    """When a member of a consumer group was heard last (ms).

    Attributes:
        interval_ms: after how long it is to be heard again.
        rebalance_ms: for how long it may keep partitions that it is to give up.
        gives_up: whether it was told to give any up, and didn't say that it has.
    """

    arrived_ms: int
    answered_ms: int
    interval_ms: int
    rebalance_ms: int
    gives_up: bool


class _Epochs(NamedTuple):
    """The epochs that members of a consumer group were told.

    Attributes:
        top: the highest.
        still_ms: when a member in it was told of no change last (ms); None where none was.
        before_ms: the same of the epoch before, where this one follows it.
    """

    top: int
    still_ms: int | None = None
    before_ms: int | None = None

    def told(self, epoch: int, arrived_ms: int, *, is_unchanged: bool) -> _Epochs:
        """Returns them after one more answer."""
        if epoch > self.top:
            return _Epochs(epoch, None, self.still_ms if epoch == self.top + 1 else None)
        if epoch == self.top and is_unchanged:
            return self._replace(still_ms=max(self.still_ms or 0, arrived_ms))
        return self


class Sessions:
    """The sessions of consumer groups' members: who was silent for how long, and still a member or none any more.

    That a silent member is none any more shows in what others are told: who is in the group, or that a partition is
    theirs which it had and never gave up.
    """

    def __init__(self, was_lost: Callable[[str, int, int], bool]) -> None:
        """Begins with nobody heard.

        Args:
            was_lost: whether a group's shard was lost between two times (ms): sessions begin again then.
        """
        self._was_lost = was_lost
        self._heard: dict[tuple[str, str], _Heard] = {}
        #: By group, whom each partition was given last; who is told to have less gives up the rest.
        self._owners: dict[str, dict[_Place, str]] = {}
        self._epochs: dict[str, _Epochs] = {}

    def note(self, entry: Entry, answer: Mapping[str, Any]) -> Iterator[Bound]:
        """Yields what a ConsumerGroupHeartbeat says, with those before it."""
        yield from self._of_itself(entry, answer)
        if answer.get("errorCode") == Errors.NONE:
            yield from self._of_others(entry, answer)

    def note_described(self, entry: Entry, group: Mapping[str, Any]) -> Iterator[Bound]:
        """Yields what a group's description says of members that are silent."""
        if group.get("errorCode") != Errors.NONE:
            return
        group_id = str(group.get("groupId"))
        listed = {str(each.get("memberId")) for each in group.get("members") or ()}
        for (of_group, member_id), heard in self._heard.items():
            if of_group != group_id or self._was_lost_since(group_id, heard, entry):
                continue
            if member_id in listed:
                yield Bound(entry.log_ts, SESSION, max(entry.arrived_us // _US - heard.answered_ms - _LATE_MS, 0), MOST)
            else:
                yield from _gone_silently(entry, heard, 1)

    def _of_others(self, entry: Entry, answer: Mapping[str, Any]) -> Iterator[Bound]:
        """Yields what it says of others that somebody is told to have their partitions."""
        group_id, member_id = str(entry.request.get("groupId")), str(answer.get("memberId"))
        epoch, given = answer.get("memberEpoch"), answer.get("assignment")
        owners = self._owners.setdefault(group_id, {})
        if not isinstance(epoch, int) or epoch < 0:
            self._owners[group_id] = {place: owner for place, owner in owners.items() if owner != member_id}
            return
        epochs = self._epochs.get(group_id) or _Epochs(epoch)
        self._epochs[group_id] = epochs = epochs.told(epoch, entry.arrived_us // _US, is_unchanged=given is None)
        if given is None:
            return
        places = _places(answer)
        before = {owners[place] for place in places if place in owners} - {member_id}
        own = dict.fromkeys(places, member_id)
        self._owners[group_id] = {place: owner for place, owner in owners.items() if owner != member_id} | own
        for owner in sorted(before):
            heard = self._heard.get((group_id, owner))
            if heard is None or self._was_lost_since(group_id, heard, entry):
                continue
            is_told_at_once = epoch == epochs.top and epochs.before_ms is not None
            still_ms = (epochs.before_ms or 0) - _ASSIGNED_LATE_MS - _LATE_MS if is_told_at_once else 0
            yield from _gone_silently(entry, heard, max(still_ms - heard.answered_ms, 1))

    def _was_lost_since(self, group_id: str, heard: _Heard, entry: Entry) -> bool:
        return self._was_lost(group_id, heard.arrived_ms - _LATE_MS, entry.answered_us // _US)

    def _of_itself(self, entry: Entry, answer: Mapping[str, Any]) -> Iterator[Bound]:
        request, error = entry.request, answer.get("errorCode")
        member = str(request.get("groupId")), str(answer.get("memberId") or request.get("memberId"))
        epoch, told = request.get("memberEpoch"), answer.get("memberEpoch")
        if error not in {Errors.NONE, Errors.UNKNOWN_MEMBER_ID} or not isinstance(epoch, int) or epoch < 0:
            if epoch in {-1, -2}:
                self._heard.pop(member, None)
            return
        before = self._heard.pop(member, None)
        if error == Errors.NONE and isinstance(told, int):
            rebalance_ms = request.get("rebalanceTimeoutMs")
            if not isinstance(rebalance_ms, int) or rebalance_ms < 0:
                rebalance_ms = before.rebalance_ms if before is not None else 0
            times = entry.arrived_us // _US, entry.answered_us // _US
            interval_ms, gives_up = int(answer.get("heartbeatIntervalMs") or 0), self._gives_up(*member, answer, before)
            self._heard[member] = _Heard(*times, interval_ms, rebalance_ms, gives_up)
        if before is None or self._was_lost_since(member[0], before, entry):
            return
        if error == Errors.NONE and epoch > 0:
            yield Bound(entry.log_ts, SESSION, max(entry.arrived_us // _US - before.answered_ms - _LATE_MS, 0), MOST)
        elif error == Errors.UNKNOWN_MEMBER_ID:
            yield from _gone_silently(entry, before, 1)

    def _gives_up(self, group_id: str, member_id: str, answer: Mapping[str, Any], before: _Heard | None) -> bool:
        """Returns whether a member is to give up partitions that it was given before."""
        if answer.get("assignment") is None:
            return before is not None and before.gives_up
        given = _places(answer)
        owners = self._owners.get(group_id, {})
        return any(owner == member_id and place not in given for place, owner in owners.items())

    def forget(self, request: Mapping[str, Any]) -> None:
        """Takes members out that an admin removed."""
        for member in request.get("members") or ():
            self._heard.pop((str(request.get("groupId")), str(member.get("memberId"))), None)


def _places(answer: Mapping[str, Any]) -> set[_Place]:
    """Returns the partitions that a member is told to have."""
    return {
        (str(topic.get("topicId")), partition)
        for topic in (answer.get("assignment") or {}).get("topicPartitions") or ()
        for partition in topic.get("partitions") or ()
    }


def _gone_silently(entry: Entry, heard: _Heard, least: int) -> Iterator[Bound]:
    """Yields how long a session lasts that was over by an answer, where nothing else ended the membership."""
    silent_ms = entry.answered_us // _US - heard.arrived_ms
    if heard.gives_up and silent_ms >= heard.rebalance_ms:
        return
    if max(_SILENT_BEATS * heard.interval_ms, least) <= silent_ms:
        yield Bound(entry.log_ts, SESSION, least, silent_ms)


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
