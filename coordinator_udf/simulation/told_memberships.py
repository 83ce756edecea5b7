"""Whether the coordinator keeps to what it told members: that they are members, and of which generation or epoch.

It is neither to take requests of others nor to refuse theirs. Told from its answers, and from whom it has removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from coordinator_udf.groups.decisions import PLACES, Row
from coordinator_udf.groups.model.classic_states import ClassicGroupState, GroupEvent
from coordinator_udf.members.outputs import Request
from coordinator_udf.protocol.errors import Errors
from coordinator_udf.simulation.coordinator import Answered, is_accepted
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.measures import BEFORE
from coordinator_udf.simulation.noted import NumberTaken, WronglyRefused
from coordinator_udf.simulation.plan import WorldPlan

_TRANSITION = PLACES["transitions"]
_COLUMNS = "rule", "members", "group_id", "cause_member_id", "cause_api"
#: The fields in which members tell their generation or epoch.
_NUMBERS = {
    "Heartbeat": "generationId",
    "SyncGroup": "generationId",
    "OffsetCommit": "generationIdOrMemberEpoch",
    "ConsumerGroupHeartbeat": "memberEpoch",
}
#: What only those are told that are no members, or not as they say.
_TO_OTHERS = frozenset(
    {
        Errors.UNKNOWN_MEMBER_ID,
        Errors.ILLEGAL_GENERATION,
        Errors.FENCED_INSTANCE_ID,
        Errors.FENCED_MEMBER_EPOCH,
        Errors.STALE_MEMBER_EPOCH,
    }
)


class _Told(NamedTuple):
    """The generation or epoch that a member was told last, and the one before it: of a generation itself.

    Attributes:
        before: -1 where an epoch isn't known, because the coordinator was loaded since.
        group_id: the one whose member it is.
        is_refused: whether it may be told, or was told since, that it is no member, or not as it says.
    """

    group_id: str
    number: int
    before: int
    is_refused: bool = False


class ToldMemberships:
    """The memberships that a world's members were told of and that have not ended, by member ids.

    A generation is told to all members as it begins, but for static ones that stay though they haven't joined, and an
    epoch to its member. So nothing else is to be taken of them, but for an epoch's predecessor: the answer that told
    the epoch may have been lost (KIP-848).
    """

    def __init__(self, plan: WorldPlan, history: History) -> None:
        """Makes it for a world in which nobody was told anything."""
        self._history = history
        self._told: dict[str, _Told] = {}
        #: Of classic static members that were replaced, their group and who has their place, by member ids.
        self._replaced: dict[str, tuple[str, str]] = {}
        kip_848 = {member.group_id for member in plan.members if member.is_kip_848}
        #: As such a group becomes classic, its generation is one that none of its members was told.
        self._mixed = kip_848 & {member.group_id for member in plan.members if not member.is_kip_848}

    def see(self, transition: Row) -> None:
        """Looks whose membership a transition ends that the coordinator has just put out."""
        rule, members, group_id, member_id, api = (transition[_TRANSITION[name]] for name in _COLUMNS)
        if members is not None:
            if transition[_TRANSITION["to_state"]] == ClassicGroupState.COMPLETING_REBALANCE:
                self._begin(group_id)
        elif rule == GroupEvent.STATIC_MEMBER_REPLACED:
            found = BEFORE.search(transition[_TRANSITION["reason"]])
            before = "" if found is None else found[1]
            self._told.pop(before, None)
            if api == "JoinGroup" and group_id not in self._mixed:
                self._replaced[before] = group_id, member_id
        elif rule != GroupEvent.MEMBER_ADDED:
            self._told.pop(member_id, None)

    def _begin(self, group_id: str) -> None:
        """Takes note of a generation, whose members are told so next: static ones that haven't joined aren't."""
        if group_id in self._history.with_static_members:
            for member_id, told in self._told.items():
                if told.group_id == group_id:
                    self._told[member_id] = told._replace(is_refused=True)

    def hear(self, answer: Answered) -> None:
        """Takes note of an answer that the coordinator has for a member."""
        request, body = answer.request, answer.body
        for member_id, code in dict(_codes(request, body)).items():
            self._look_at_replaced(answer, member_id, code)
            told = self._told.get(member_id)
            if told is not None and not told.is_refused and code not in {Errors.NONE, Errors.REBALANCE_IN_PROGRESS}:
                self._refuse(answer, member_id, told, code)
        if request.api == "JoinGroup":
            if body["errorCode"] == Errors.NONE:
                generation = body["generationId"]
                self._told[body["memberId"]] = _Told(request.body["groupId"], generation, generation)
        elif request.api in _NUMBERS and is_accepted(answer):
            self._take(answer)
            if request.api == "ConsumerGroupHeartbeat":
                self._tell(request, body["memberEpoch"])

    def _refuse(self, answer: Answered, member_id: str, told: _Told, code: int) -> None:
        request, number = answer.request, _number(answer.request)
        group_id = request.body["groupId"]
        # Who joins or leaves has no number. A commit without one is of a member that believes to have left.
        says_so = number == told.number or (number is None and request.api != "OffsetCommit")
        if code in _TO_OTHERS and says_so and group_id not in self._mixed:
            refused = WronglyRefused(answer.ts_ms, group_id, answer.connection.member, request.api, Errors(code).name)
            self._history.wrongly_refused.append(refused)
        # Who isn't let into a full group as it joins again is out.
        if request.api != "OffsetCommit" and (code in _TO_OTHERS or code == Errors.GROUP_MAX_SIZE_REACHED):
            self._told[member_id] = told._replace(is_refused=True)

    def _look_at_replaced(self, answer: Answered, member_id: str, code: int) -> None:
        """Looks whether a static member that was replaced is told so, and not to join again."""
        request, replaced = answer.request, self._replaced.get(member_id)
        if replaced is None or code != Errors.UNKNOWN_MEMBER_ID or not request.body.get("groupInstanceId"):
            return
        group_id, by = replaced
        while by in self._replaced:
            _, by = self._replaced[by]
        if by in self._told:
            process = answer.connection.member
            refused = WronglyRefused(answer.ts_ms, group_id, process, request.api, Errors(code).name)
            self._history.not_told_fenced.append(refused)

    def _take(self, answer: Answered) -> None:
        request, number = answer.request, _number(answer.request)
        told = self._told.get(request.body["memberId"])
        # Who joins, or leaves, has none.
        if told is None or number is None:
            return
        # A commit may be of an older epoch, since which its member has the partition (KIP-1251): of KIP-848 members,
        # and of classic ones in a group of theirs.
        is_of_kip_848 = told.before != told.number or told.group_id in self._mixed
        may_be_older = told.before < 0 or (request.api == "OffsetCommit" and is_of_kip_848)
        if number not in {told.number, told.before} and not (may_be_older and number < told.number):
            group_id, process = request.body["groupId"], answer.connection.member
            taken = NumberTaken(answer.ts_ms, group_id, process, request.api, number, told.number)
            self._history.numbers_taken.append(taken)

    def _tell(self, request: Request, epoch: int) -> None:
        group_id, member_id, asked = (request.body[name] for name in ("groupId", "memberId", "memberEpoch"))
        told = self._told.get(member_id)
        if epoch <= 0:
            self._told.pop(member_id, None)
        elif told is None:
            self._told[member_id] = _Told(group_id, epoch, -1 if asked == epoch else max(asked, 0))
        else:
            self._told[member_id] = _Told(group_id, epoch, told.before if epoch == told.number else told.number)

    def begin_anew(self, groups: Collection[str]) -> None:
        """Forgets those of some groups.

        A coordinator that is loaded may know less than was told (a generation that wasn't stored).
        """
        self._told = {member_id: told for member_id, told in self._told.items() if told.group_id not in groups}
        self._replaced = {before: (of, by) for before, (of, by) in self._replaced.items() if of not in groups}


def _number(request: Request) -> int | None:
    """Returns the generation or epoch that a request tells; None if none."""
    number: int = request.body[_NUMBERS[request.api]] if request.api in _NUMBERS else 0
    return number if number > 0 else None


def _codes(request: Request, body: Any) -> Iterator[tuple[str, int]]:
    """Yields what a request is answered, with whose member it is for."""
    match request.api:
        case "LeaveGroup":
            for one in body["members"]:
                yield one["memberId"], body["errorCode"] or one["errorCode"]
        case "OffsetCommit":
            for topic in body["topics"]:
                for place in topic["partitions"]:
                    yield request.body["memberId"], place["errorCode"]
        case "JoinGroup" | "SyncGroup" | "Heartbeat" | "ConsumerGroupHeartbeat":
            yield request.body["memberId"], body["errorCode"]
