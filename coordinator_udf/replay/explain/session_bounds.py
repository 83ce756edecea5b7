"""What answers say of `group.consumer.session.timeout.ms`: who was silent for how long, and still a member or gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.explain.expiry_bounds import MOST, Bound
from coordinator_udf.replay.inputs.broker_log.line import Entry

SESSION: Final = "group.consumer.session.timeout.ms"

_US: Final = 1_000
#: A member that was silent for less than so many heartbeats was dropped for another reason than its silence.
_SILENT_BEATS: Final = 3
#: A member's session began again when its request was handled; the next one was handled so late at most (ms).
_LATE_MS: Final = 250
#: So long after a member is gone others may be told of no new epoch yet: a new assignment is computed so long after the
#: one before at the latest (group.consumer.assignment.interval.ms' default), in milliseconds.
_ASSIGNED_LATE_MS: Final = 1_000

#: So many answers are enough to tell that a member is gone; later ones say less.
_MOST_TOLD: Final = 3

#: A topic's id, and a partition.
_Place = tuple[str, int]


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


class _Group:
    """A consumer group, as far as answers tell.

    Attributes:
        heard: by member, when it was heard last.
        owners: whom each partition was given last; who is told to have less gives up the rest.
        given: by member, what it was given last.
        epochs: the epochs that members were told.
        gone: how often answers told of a member that it is gone.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.heard: dict[str, _Heard] = {}
        self.owners: dict[_Place, str] = {}
        self.given: dict[str, set[_Place]] = {}
        self.epochs: _Epochs | None = None
        self.gone: Counter[str] = Counter()

    def lost(self, member_id: str, places: set[_Place]) -> set[_Place]:
        """Returns which of its partitions a member has no more that is told to have others."""
        return {place for place in self.given.get(member_id, set()) - places if self.owners.get(place) == member_id}

    def give(self, member_id: str, places: set[_Place]) -> set[str]:
        """Notes what a member is told to have, and returns whose that was before."""
        before = {self.owners[place] for place in places if place in self.owners} - {member_id}
        for place in self.lost(member_id, places):
            del self.owners[place]
        self.owners |= dict.fromkeys(places, member_id)
        self.given[member_id] = places
        return before


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
        self._groups: dict[str, _Group] = {}

    def note(self, entry: Entry, answer: Mapping[str, Any]) -> Iterator[Bound]:
        """Yields what a ConsumerGroupHeartbeat says, with those before it."""
        group_id = str(entry.request.get("groupId"))
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = _Group(group_id)
        yield from self._of_itself(group, entry, answer)
        if answer.get("errorCode") == Errors.NONE:
            yield from self._of_others(group, entry, answer)

    def note_described(self, entry: Entry, described: Mapping[str, Any]) -> Iterator[Bound]:
        """Yields what a group's description says of members that are silent."""
        group = self._groups.get(str(described.get("groupId")))
        if group is None or described.get("errorCode") != Errors.NONE:
            return
        listed = {str(each.get("memberId")) for each in described.get("members") or ()}
        for member_id, heard in group.heard.items():
            silent_ms = entry.arrived_us // _US - heard.answered_ms - _LATE_MS
            if silent_ms < _SILENT_BEATS * heard.interval_ms:
                continue
            if member_id not in listed:
                yield from self._gone(group, member_id, entry, 1)
            elif not self._was_lost_since(group, heard, entry):
                yield Bound(entry.log_ts, SESSION, silent_ms, MOST)

    def forget(self, request: Mapping[str, Any]) -> None:
        """Takes members out that an admin removed."""
        group = self._groups.get(str(request.get("groupId")))
        for member in request.get("members") or ():
            if group is not None:
                group.heard.pop(str(member.get("memberId")), None)

    def _of_itself(self, group: _Group, entry: Entry, answer: Mapping[str, Any]) -> Iterator[Bound]:
        request, error = entry.request, answer.get("errorCode")
        member_id = str(answer.get("memberId") or request.get("memberId"))
        epoch, told = request.get("memberEpoch"), answer.get("memberEpoch")
        if error not in {Errors.NONE, Errors.UNKNOWN_MEMBER_ID} or not isinstance(epoch, int) or epoch < 0:
            if epoch in {-1, -2}:
                group.heard.pop(member_id, None)
            return
        before = group.heard.get(member_id)
        if error == Errors.UNKNOWN_MEMBER_ID:
            yield from self._gone(group, member_id, entry, 1)
            group.heard.pop(member_id, None)
        elif isinstance(told, int):
            group.heard[member_id] = _heard(group, member_id, entry, answer)
            group.gone.pop(member_id, None)
            if before is not None and epoch > 0 and not self._was_lost_since(group, before, entry):
                silent_ms = max(entry.arrived_us // _US - before.answered_ms - _LATE_MS, 0)
                yield Bound(entry.log_ts, SESSION, silent_ms, MOST)

    def _of_others(self, group: _Group, entry: Entry, answer: Mapping[str, Any]) -> Iterator[Bound]:
        """Yields what it says of others that somebody is told to have their partitions."""
        member_id, epoch, given = str(answer.get("memberId")), answer.get("memberEpoch"), answer.get("assignment")
        if not isinstance(epoch, int) or epoch < 0:
            group.give(member_id, set())
            return
        epochs = group.epochs or _Epochs(epoch)
        group.epochs = epochs = epochs.told(epoch, entry.arrived_us // _US, is_unchanged=given is None)
        if given is None:
            return
        is_told_at_once = epoch == epochs.top and epochs.before_ms is not None
        still_ms = (epochs.before_ms or 0) - _ASSIGNED_LATE_MS - _LATE_MS if is_told_at_once else 0
        for owner in sorted(group.give(member_id, _places(answer))):
            yield from self._gone(group, owner, entry, still_ms)

    def _gone(self, group: _Group, member_id: str, entry: Entry, still_ms: int) -> Iterator[Bound]:
        """Yields how long a session lasts that was over by an answer, where nothing else ended the membership.

        Args:
            still_ms: until when it was not over.
        """
        heard = group.heard.get(member_id)
        if heard is None or group.gone[member_id] >= _MOST_TOLD:
            return
        silent_ms, least = entry.answered_us // _US - heard.arrived_ms, max(still_ms - heard.answered_ms, 1)
        is_late = heard.gives_up and silent_ms >= heard.rebalance_ms
        if is_late or silent_ms < max(_SILENT_BEATS * heard.interval_ms, least):
            return
        if not self._was_lost_since(group, heard, entry):
            group.gone[member_id] += 1
            yield Bound(entry.log_ts, SESSION, least, silent_ms)

    def _was_lost_since(self, group: _Group, heard: _Heard, entry: Entry) -> bool:
        return self._was_lost(group.group_id, heard.arrived_ms - _LATE_MS, entry.answered_us // _US)


def _heard(group: _Group, member_id: str, entry: Entry, answer: Mapping[str, Any]) -> _Heard:
    """Returns what is known of a member that is answered, before what it is given is noted."""
    before, given = group.heard.get(member_id), answer.get("assignment")
    rebalance_ms = entry.request.get("rebalanceTimeoutMs")
    if not isinstance(rebalance_ms, int) or rebalance_ms < 0:
        rebalance_ms = before.rebalance_ms if before is not None else 0
    gives_up = bool(group.lost(member_id, _places(answer))) if given is not None else bool(before and before.gives_up)
    interval_ms = int(answer.get("heartbeatIntervalMs") or 0)
    return _Heard(entry.arrived_us // _US, entry.answered_us // _US, interval_ms, rebalance_ms, gives_up)


def _places(answer: Mapping[str, Any]) -> set[_Place]:
    """Returns the partitions that a member is told to have."""
    return {
        (str(topic.get("topicId")), partition)
        for topic in (answer.get("assignment") or {}).get("topicPartitions") or ()
        for partition in topic.get("partitions") or ()
    }
