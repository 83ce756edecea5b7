"""What may have been there before a broker's log began: members, groups, and committed offsets.

One answer alone says little: what others of the same log deny, it doesn't prove.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry

#: The first member of a new group gets no higher epoch, or generation, than this.
_FIRST_EPOCH: Final = 2
#: What is answered where there is no such member, or no such group.
_NOBODY: Final = frozenset({Errors.UNKNOWN_MEMBER_ID, Errors.GROUP_ID_NOT_FOUND, Errors.INVALID_GROUP_ID})
_NO_OFFSET: Final = -1
#: What is answered to members that are there.
_HERE: Final = frozenset({Errors.NONE, Errors.REBALANCE_IN_PROGRESS})
#: A group that begins in the log has older offsets only if so many are told of, and one that doesn't such a member; and
#: none begins in it of which so many requests are of members whose coming isn't in it.
_LEAST_TOLD: Final = 2
#: In which fields requests name the generation or epoch of their member; offsets are committed without one, too.
_EPOCHS: Final = ("generationId", "generationIdOrMemberEpoch", "memberEpoch")
_COMING: Final = frozenset({"JoinGroup", "ConsumerGroupHeartbeat"})
#: The APIs whose answers list a group's members.
DESCRIBE: Final = frozenset({"DescribeGroups", "ConsumerGroupDescribe"})

Place = tuple[str, str, int]


class OlderThings:
    """Collects what the answers of a log tell of things that began before it."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """Begins with nothing told.

        Args:
            names: of topics, by id.
        """
        self._names = names
        self._first_epoch: dict[str, int] = {}
        #: By group, and by group and member: how many answers are of one that is there, and how many of one that isn't.
        self._groups: defaultdict[str, Counter[bool]] = defaultdict(Counter)
        self._members: defaultdict[tuple[str, str], Counter[bool]] = defaultdict(Counter)
        #: By group and member, how many requests and descriptions tell of it, and when the first was handled (ms).
        self._mentions: dict[tuple[str, str], tuple[int, int]] = {}
        #: By group, the members that the log shows coming, and how many requests of others it answers as members'.
        self._came: set[tuple[str, str]] = set()
        self._older_requests: Counter[str] = Counter()
        #: What was told of offsets before anybody committed any.
        self._offsets: defaultdict[Place, list[int]] = defaultdict(list)
        self._committed: dict[Place, int] = {}
        #: By group, how many offsets were told before anybody committed any.
        self._told: Counter[str] = Counter()

    def note(self, entry: Entry) -> None:
        """Takes note of a request with its answer."""
        request, answer = entry.request, entry.response
        if answer is None:
            return
        group_id = request.get("groupId")
        if entry.api in DESCRIBE:
            for group in answer.get("groups") or ():
                for member in group.get("members") or ():
                    self._mention(str(group.get("groupId")), str(member.get("memberId")), entry)
            return
        if entry.api == "OffsetFetch":
            for place, told in self._fetched(request, answer):
                if place not in self._committed and told.get("errorCode") == Errors.NONE:
                    self._offsets[place].append(told.get("committedOffset", _NO_OFFSET))
                    self._told[place[0]] += not _is_nothing(told)
            return
        if not isinstance(group_id, str):
            return
        error = answer.get("errorCode")
        if entry.api in {"OffsetCommit", "TxnOffsetCommit"}:
            for name, partition in self._partitions(request):
                self._committed.setdefault((group_id, name, partition["partitionIndex"]), entry.log_ts)
            codes = {told.get("errorCode") for _, told in self._partitions(answer)}
            error = next((code for code in codes if code), 0)
        exists = error not in _NOBODY
        self._groups[group_id][exists] += 1
        comes = entry.api in _COMING and (not request.get("memberId") or request.get("memberEpoch") == 0)
        if comes:
            self._came.add((group_id, str(answer.get("memberId") or request.get("memberId"))))
        if request.get("memberId"):
            self._members[group_id, request["memberId"]][exists] += 1
            self._mention(group_id, request["memberId"], entry)
            is_here = error in _HERE and (entry.api == "JoinGroup" or any(request.get(name, 0) > 0 for name in _EPOCHS))
            self._older_requests[group_id] += is_here and (group_id, request["memberId"]) not in self._came
        epoch = answer.get("generationId" if entry.api == "JoinGroup" else "memberEpoch")
        if entry.api in _COMING and error == Errors.NONE and isinstance(epoch, int):
            self._first_epoch.setdefault(group_id, epoch)

    def _mention(self, group_id: str, member_id: str, entry: Entry) -> None:
        times, first_ms = self._mentions.get((group_id, member_id), (0, entry.log_ts))
        self._mentions[group_id, member_id] = times + 1, first_ms

    def may_have_member(self, group_id: str, member_id: str) -> bool:
        """Returns whether a member whose coming isn't in the log may be older than it."""
        return not self.has_begun(group_id) and _is_likely(self._members[group_id, member_id])

    def has_begun(self, group_id: str) -> bool:
        """Returns whether a group got its first members in the log."""
        is_low = 0 < self._first_epoch.get(group_id, _FIRST_EPOCH + 1) <= _FIRST_EPOCH
        return is_low and self._older_requests[group_id] < _LEAST_TOLD

    def may_have_group(self, group_id: str) -> bool:
        """Returns whether a group that nobody joins, and commits to, in the log may be older than it."""
        return bool(group_id) and _is_likely(self._groups[group_id])

    def has_new_to_log(self, entry: Entry, group: Mapping[str, Any]) -> bool:
        """Returns whether a description is the first to tell of a member that is older than the log, and not the last.

        What such a member had, and when its session ends, nothing told before.
        """
        group_id = str(group.get("groupId"))
        members = (self._mentions.get((group_id, str(each.get("memberId")))) for each in group.get("members") or ())
        found = (mentioned for mentioned in members if mentioned is not None)
        return not self.has_begun(group_id) and any(
            times >= _LEAST_TOLD and first_ms >= entry.log_ts for times, first_ms in found
        )

    def may_have_offsets(self, entry: Entry, difference: Any) -> bool:
        """Returns whether all that differs in an answer to OffsetFetch are offsets older than the log."""
        theirs, ours = (
            dict(self._fetched(entry.request, side["body"])) for side in (difference.recorded, difference.ours)
        )
        if _errors(difference.recorded["body"]) != _errors(difference.ours["body"]):
            return False
        for place in theirs.keys() | ours.keys():
            told, own = theirs.get(place, {}), ours.get(place, {})
            if told == own:
                continue
            said = told.get("committedOffset", _NO_OFFSET)
            committed = self._committed.get(place)
            # Who asks for all is told of a partition only if something was committed, be it -1.
            is_told = place in theirs and (place not in ours or not _is_nothing(told))
            if not is_told or not _is_nothing(own) or told.get("errorCode") != Errors.NONE:
                return False
            if committed is not None and committed <= entry.log_ts:
                return False
            if not self._may_be_older(place, said):
                return False
        return True

    def _may_be_older(self, place: Place, offset: int) -> bool:
        """Returns whether an offset may be older than the log: such a one may go, but it neither comes nor changes."""
        told = self._offsets[place]
        if self.has_begun(place[0]) and self._told[place[0]] < _LEAST_TOLD:
            return False
        if _NO_OFFSET in told[: told.index(offset)]:
            return False
        others = Counter(other for other in told if other not in {offset, _NO_OFFSET})
        return not others or max(others.values()) <= told.count(offset)

    def _fetched(self, request: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[Place, dict[str, Any]]]:
        for group in answer.get("groups") or [{**answer, "groupId": request.get("groupId")}]:
            for name, told in self._partitions(group):
                yield (str(group.get("groupId")), name, told["partitionIndex"]), told

    def _partitions(self, body: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        for topic in body.get("topics") or ():
            topic_id = str(topic.get("topicId"))
            for partition in topic.get("partitions") or ():
                yield str(topic.get("name") or self._names.get(topic_id, topic_id)), partition


def _is_nothing(told: Mapping[str, Any]) -> bool:
    """Returns whether nothing was committed; some clients commit an offset of -1."""
    said = (told.get("committedOffset", _NO_OFFSET), told.get("committedLeaderEpoch", -1), told.get("metadata") or "")
    return said == (_NO_OFFSET, -1, "")


def _is_likely(said: Counter[bool]) -> bool:
    return said[True] > 1 or not said[False]


def _errors(body: Mapping[str, Any]) -> list[Any]:
    return [body.get("errorCode"), *(group.get("errorCode") for group in body.get("groups") or ())]
