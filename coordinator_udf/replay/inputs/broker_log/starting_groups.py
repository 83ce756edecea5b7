"""What the first answers of a log tell of classic groups that were there before it began: their starting state.

A member that was there is one that the coordinator answers as its own although the log doesn't show how it came. What a
member's subscription and timeouts are, its next JoinGroup tells, or the answer to a leader or to DescribeGroups that
lists it. Of the groups of the consumer protocol (KIP-848) answers tell too little: they begin empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.inputs.broker_log.line import Entry
from coordinator_udf.replay.inputs.broker_log.silences import Silences

#: What a member is answered that the coordinator knows.
_KNOWN: Final = frozenset({Errors.NONE, Errors.REBALANCE_IN_PROGRESS})
#: Kafka's defaults of session.timeout.ms and max.poll.interval.ms, where nothing tells a member's own.
_SESSION_MS: Final = 45_000
_REBALANCE_MS: Final = 300_000
_VALUE_VERSION: Final = 3
_US: Final = 1_000
#: Of a group's first answers so many are asked for its generation; so many of them outvote one that came before.
_ASKED: Final = 8
_OUTVOTE: Final = 2


class _Told(NamedTuple):
    """An answer that tells a generation, and which one the group had when the log began if it is the first."""

    generation: int
    at_start: int


class _Group:
    """What the log tells of one group so far."""

    def __init__(self, began_ms: int) -> None:
        """Begins where the log does."""
        self.silences = Silences(began_ms)
        #: Ids that the log shows being given to new members.
        self.given: set[str] = set()
        #: Members that were there before, in the order in which they are told of.
        self.older: dict[str, Entry | None] = {}
        self.joins: dict[str, Mapping[str, Any]] = {}
        self.listed: dict[str, Mapping[str, Any]] = {}
        #: What DescribeGroups first says of each, by instance id or else member id.
        self.described: dict[str, Mapping[str, Any]] = {}
        self.instances: dict[str, str] = {}
        self._told: list[_Told] = []
        #: The first generation that each member named, and those that the log shows it being let into.
        self._named: dict[str, int] = {}
        self._let_into: set[tuple[str, int]] = set()
        #: By instance, the first that joined for it without a member id, and the generation that this was answered.
        self._came: dict[str, tuple[Entry, int]] = {}
        #: What each member was assigned in the generation that it named.
        self._assigned: dict[tuple[str, int], str] = {}
        #: Members without an instance, and instances, of whom it was told that they aren't there.
        self._absent: set[str] = set()
        self.first_answer: Mapping[str, Any] | None = None
        self.described_protocol: str | None = None
        self.protocol_type = "consumer"
        self.is_consumer = False
        #: Whether it was told that the group isn't there, or joined and not completed, before any of its generations.
        self.begins_here = False

    @property
    def generation(self) -> int | None:
        """The generation that the group had when the log began.

        Generations grow, so an answer that tells a higher one than answers that follow is none to begin with.
        """
        for place, told in enumerate(self._told):
            if sum(later.generation < told.generation for later in self._told[place + 1 :]) < _OUTVOTE:
                return max(told.at_start, told.generation if told.generation == self._older_generation else 0)
        return None

    @property
    def _older_generation(self) -> int | None:
        """The generation of those who are in one that the log doesn't show them being let into."""
        older = (told for told in self._named.items() if told not in self._let_into and told[0] not in self.given)
        return min((generation for _, generation in older), default=None)

    def tells(self, generation: Any, at_start: Any) -> None:
        """Takes note of an answer that tells a generation."""
        if isinstance(generation, int) and isinstance(at_start, int) and len(self._told) <= _ASKED:
            self._told.append(_Told(generation, at_start))

    def names(self, member_id: str, generation: Any) -> None:
        """Takes note of a member that is answered as one of the generation that it names."""
        if member_id and isinstance(generation, int):
            self._named.setdefault(member_id, generation)

    def is_assigned(self, member_id: str, generation: Any, assignment: Any) -> None:
        """Takes note of what a member is told to be its own."""
        if isinstance(generation, int) and isinstance(assignment, str):
            self._assigned.setdefault((member_id, generation), assignment)

    def assignment(self, member_id: str, instance: str | None) -> str:
        """Returns what a member had when the log began, as it is told itself, or who takes its place; else nothing."""
        generation = self._older_generation
        if generation is None or generation != self.generation:
            return ""
        came = self._came.get(instance or "")
        heir = "" if came is None or came[0].response is None else came[0].response["memberId"]
        return self._assigned.get((member_id, generation)) or self._assigned.get((heir, generation), "")

    def lets_in(self, entry: Entry, member_id: str, generation: int) -> None:
        """Takes note of a member that is let into a generation."""
        self._let_into.add((member_id, generation))
        instance = entry.request.get("groupInstanceId")
        if instance and not entry.request["memberId"] and instance not in self._absent:
            self._came.setdefault(instance, (entry, generation))

    def replaced(self) -> Iterator[tuple[str, Entry]]:
        """Yields the instances that were there already, under an id that nothing tells, with the join for them.

        Without a rebalance only a member that takes another's place is let into a group.
        """
        known = {self.instances.get(each) or self.listed.get(each, {}).get("groupInstanceId") for each in self.older}
        for instance, (entry, generation) in self._came.items():
            if generation == self.generation and generation == self._older_generation and instance not in known:
                yield instance, entry

    def is_absent(self) -> None:
        if not self.older and not self._told:
            self.begins_here = True

    def is_unknown(self, member_id: str, instance: str | None) -> None:
        """Takes note of a member that isn't there."""
        self._absent.add(instance or member_id)

    def is_known(self, member_id: str, entry: Entry | None) -> None:
        instance = None if entry is None else entry.request.get("groupInstanceId")
        if (instance or member_id) in self._absent:
            # Who wasn't there is there only once it has joined.
            return
        # Who isn't in the first list of all members that is told was not there before.
        may_be = not self.listed or member_id in self.listed or member_id in self.older
        if member_id and may_be and member_id not in self.given and self.older.get(member_id) is None:
            self.older[member_id] = entry


def starting_groups(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Returns the records (GroupMetadata) of the classic groups that were there before the first entry.

    Args:
        entries: the log in order.
    """
    groups: dict[str, _Group] = {}
    for entry in entries:
        # Nobody is a member of the group without a name.
        for group_id in filter(None, _named(entry)):
            if group_id not in groups:
                groups[group_id] = _Group(entries[0].log_ts)
            _note(groups[group_id], group_id, entry)
    found = ((group_id, _value(group)) for group_id, group in groups.items())
    return [
        {"key": {"type": "GroupMetadata", "group": group_id}, "valueVersion": _VALUE_VERSION, "value": value}
        for group_id, value in found
        if value is not None
    ]


def agrees(stored: Mapping[str, Any] | None, told: Mapping[str, Any]) -> bool:
    """Returns whether a stored classic group agrees with answers: same generation, at least these members."""
    if stored is None or "members" not in stored or stored["generation"] != told["generation"]:
        return False
    members = {member["memberId"] for member in stored["members"]}
    return members >= {member["memberId"] for member in told["members"]}


def _named(entry: Entry) -> Iterable[str]:
    group_id = entry.request.get("groupId")
    if isinstance(group_id, str):
        return (group_id,)
    if entry.api == "DescribeGroups" and entry.response is not None:
        return [each["groupId"] for each in entry.response.get("groups") or ()]
    return ()


def _note(group: _Group, group_id: str, entry: Entry) -> None:
    request, answer = entry.request, entry.response
    if answer is None:
        return
    if entry.api == "JoinGroup":
        _note_join(group, entry, answer)
    elif entry.api == "DescribeGroups":
        _note_description(group, group_id, entry, answer)
    elif entry.api == "ConsumerGroupHeartbeat":
        group.is_consumer |= answer.get("errorCode") == Errors.NONE
        if answer.get("errorCode") == Errors.GROUP_ID_NOT_FOUND and "not found" in (answer.get("errorMessage") or ""):
            group.is_absent()
    elif entry.api in {"Heartbeat", "SyncGroup"} and answer.get("errorCode") in _KNOWN:
        group.is_known(request["memberId"], entry)
        group.silences.hear(_name(request), entry)
        group.names(request["memberId"], request.get("generationId"))
        group.tells(request.get("generationId"), request.get("generationId"))
        group.is_assigned(request["memberId"], request.get("generationId"), answer.get("assignment"))
    elif entry.api in {"Heartbeat", "SyncGroup"} and answer.get("errorCode") == Errors.UNKNOWN_MEMBER_ID:
        group.is_unknown(request["memberId"], request.get("groupInstanceId"))
        group.silences.is_absent(_name(request), entry.log_ts)
    elif entry.api == "OffsetCommit" and request.get("generationIdOrMemberEpoch", request.get("generationId", -1)) >= 0:
        topics = answer.get("topics") or ()
        if {part.get("errorCode") for topic in topics for part in topic.get("partitions") or ()} == {Errors.NONE}:
            group.is_known(request.get("memberId", ""), entry)
            group.silences.hear(_name(request), entry)
    elif entry.api == "LeaveGroup" and answer.get("errorCode") == Errors.NONE:
        for member in answer.get("members") or ():
            if member.get("errorCode") == Errors.NONE:
                group.is_known(member.get("memberId") or "", None)
                group.silences.leaves(_name(member))
    instance, member_id = request.get("groupInstanceId"), request.get("memberId")
    if instance and member_id:
        group.instances[member_id] = instance


def _name(member: Mapping[str, Any]) -> str:
    """Returns by what a member is known for good."""
    name: str = member.get("groupInstanceId") or member.get("memberId") or ""
    return name


def _note_join(group: _Group, entry: Entry, answer: Mapping[str, Any]) -> None:
    member_id, code = entry.request["memberId"], answer.get("errorCode")
    if not member_id:
        # A group that is converted meanwhile sends those who wait away, with their new ids.
        group.given.add(answer["memberId"])
        if code == Errors.REBALANCE_IN_PROGRESS:
            group.is_absent()
    elif code in _KNOWN:
        group.is_known(member_id, entry)
        group.silences.hear(_name(entry.request), entry)
    if code not in _KNOWN:
        return
    group.joins.setdefault(member_id or answer["memberId"], entry.request)
    group.protocol_type = entry.request.get("protocolType") or group.protocol_type
    if code != Errors.NONE:
        return
    if group.first_answer is None:
        group.first_answer = answer
    group.lets_in(entry, member_id or answer["memberId"], answer["generationId"])
    group.tells(answer["generationId"], answer["generationId"] - 1)
    listed = {member["memberId"]: member for member in answer.get("members") or ()}
    if listed:
        group.silences.lists([_name(member) for member in listed.values()], entry.answered_us // _US)
        group.listed = group.listed or listed


def _note_description(group: _Group, group_id: str, entry: Entry, answer: Mapping[str, Any]) -> None:
    for described in answer.get("groups") or ():
        if described["groupId"] != group_id or described.get("errorCode") != Errors.NONE:
            continue
        if described.get("groupState") == "Dead":
            group.is_absent()
        group.described_protocol = group.described_protocol or described.get("protocolData") or None
        group.silences.lists([_name(member) for member in described.get("members") or ()], entry.log_ts)
        for member in described.get("members") or ():
            group.is_known(member["memberId"], None)
            group.listed.setdefault(member["memberId"], {**member, "metadata": member.get("memberMetadata")})
            group.described.setdefault(_name(member), member)


def _value(group: _Group) -> dict[str, Any] | None:
    """Returns the record's value; None where the group began with the log, or answers tell too little."""
    if group.is_consumer or group.generation is None or group.generation < (0 if group.older else 1):
        return None
    if group.begins_here and not group.older:
        return None
    first = group.first_answer or {}
    protocol = first.get("protocolName") or group.described_protocol or _first_protocol(group)
    leader = first.get("leader")
    if leader not in group.older:
        leader = next(iter(group.older), None)
    return {
        "protocolType": group.protocol_type,
        "generation": group.generation,
        "protocol": protocol if group.older else None,
        "leader": leader,
        "currentStateTimestamp": -1,
        "members": list(_members(group, protocol)),
    }


def _first_protocol(group: _Group) -> str | None:
    return next((each["name"] for join in group.joins.values() for each in join["protocols"]), "range")


def _members(group: _Group, protocol: str | None) -> Iterator[dict[str, Any]]:
    usual = next(iter(group.joins.values()), {})
    sessions_ms = list(dict.fromkeys(filter(None, (each.get("sessionTimeoutMs") for each in group.joins.values()))))
    for member_id, entry in group.older.items():
        join, listed = group.joins.get(member_id), group.listed.get(member_id, {})
        timeouts, session_ms = join or usual, (join or {}).get("sessionTimeoutMs")
        instance = group.instances.get(member_id) or listed.get("groupInstanceId")
        described = group.described.get(instance or member_id, {})
        own_host = None if entry is None else entry.client_host
        # The coordinator goes on calling a static member as its first process called itself.
        own_name = entry.client_id if entry is not None and instance is None else None
        yield {
            "memberId": member_id,
            "groupInstanceId": instance,
            "clientId": own_name or described.get("clientId") or "",
            "clientHost": described.get("clientHost") or own_host or "",
            "rebalanceTimeout": timeouts.get("rebalanceTimeoutMs") or _REBALANCE_MS,
            "sessionTimeout": session_ms or group.silences.session_ms(instance or member_id, sessions_ms),
            "subscription": _subscription(join, protocol) or listed.get("metadata") or _subscription(usual, protocol),
            "assignment": listed.get("memberAssignment") or group.assignment(member_id, instance),
        }
    for instance, entry in group.replaced():
        described = group.described.get(instance, {})
        yield {
            "memberId": f"{instance}-unknown",
            "groupInstanceId": instance,
            "clientId": described.get("clientId", ""),
            "clientHost": described.get("clientHost", ""),
            "rebalanceTimeout": entry.request.get("rebalanceTimeoutMs") or _REBALANCE_MS,
            "sessionTimeout": entry.request.get("sessionTimeoutMs") or _SESSION_MS,
            "subscription": _subscription(entry.request, protocol),
            "assignment": group.assignment("", instance),
        }


def _subscription(join: Mapping[str, Any] | None, protocol: str | None) -> str:
    named = [each["metadata"] for each in (join or {}).get("protocols") or () if each["name"] == protocol]
    return named[0] if named else ""
