"""Which assignor of the members' own a consumer group uses (KIP-848's client-side mode).

Pure functions of the members. Source: KIP-848 (client-side mode), KIP-268 for versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from coordinator_udf.groups.model.client_assignment import ClientAssignor
from coordinator_udf.groups.model.consumer import LEFT_FOR_A_WHILE, ConsumerMember
from coordinator_udf.protocol.consumer_protocol import MalformedConsumerProtocol, decode_subscription
from coordinator_udf.protocol.errors import ApiError, Errors

#: The version of what is the user data of the classic protocol.
_CLASSIC_VERSION = -1


class Choice(NamedTuple):
    """The assignor that the members use.

    Attributes:
        name: which one.
        version: the newest version of metadata that all members' assignors read.
        able: who is there and can run it, by id.
    """

    name: str
    version: int
    able: tuple[str, ...]


def supported(member: ConsumerMember) -> Sequence[ClientAssignor]:
    """Returns what a member supports: of one of the classic protocol its protocols, with their user data."""
    if member.classic is None:
        return member.client_assignors
    return [
        ClientAssignor(name, _CLASSIC_VERSION, _CLASSIC_VERSION, metadata=_user_data(subscription))
        for name, subscription in member.classic.protocols
    ]


def _user_data(subscription: bytes) -> bytes:
    try:
        return decode_subscription(subscription).user_data or b""
    except MalformedConsumerProtocol:
        return b""


def uses_client_assignors(members: Iterable[ConsumerMember]) -> bool:
    """Returns whether a member can run an assignor."""
    return any(member.client_assignors for member in members)


def choose(members: Sequence[ConsumerMember]) -> Choice | None:
    """Chooses the assignor: one that all members support in a common version, by their order of preference.

    Each member votes for the first that it names of those that come into question. Where votes are equal, the one
    wins that stands further in front in all members' lists together, then the first by name.

    Returns:
        The choice; None where the coordinator is to assign.
    """
    if not uses_client_assignors(members):
        return None
    lists = [supported(member) for member in members]
    versions = {name: common for name, common in _common_versions(lists).items() if common is not None}
    runnable = {each.name for member in members if member.classic is None for each in member.client_assignors}
    candidates = versions.keys() & runnable
    if not candidates:
        return None
    votes: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for one in lists:
        in_order = [each.name for each in one if each.name in candidates]
        votes[in_order[0]] += 1
        places.update({name: place for place, name in enumerate(in_order)})
    name = min(candidates, key=lambda each: (-votes[each], places[each], each))
    able = sorted(member.member_id for member in members if _can_run(member, name))
    return Choice(name, versions[name], tuple(able))


def _can_run(member: ConsumerMember, name: str) -> bool:
    is_there = member.classic is None and member.member_epoch != LEFT_FOR_A_WHILE
    return is_there and any(each.name == name for each in member.client_assignors)


def _common_versions(lists: Sequence[Sequence[ClientAssignor]]) -> Mapping[str, int | None]:
    """Returns the assignors that are on all lists, each with the newest version in all ranges; None if there is none.

    A range of versions meets others where its end isn't before the beginning of any of them.
    """
    first, *others = ({each.name: each for each in one} for one in lists)
    return {
        name: _newest_common([each, *(other[name] for other in others)])
        for name, each in first.items()
        if all(name in other for other in others)
    }


def _newest_common(assignors: Sequence[ClientAssignor]) -> int | None:
    newest = min(each.maximum_version for each in assignors)
    return newest if newest >= max(each.minimum_version for each in assignors) else None


def check_versions(others: Sequence[ConsumerMember], member: ConsumerMember) -> None:
    """Checks that a member's assignors can be used with those of the others.

    Names that the others don't have make the coordinator assign, and are no error. A name that they all have in a
    common version which the member doesn't read is one, unless the member has another one that can be used.

    Raises:
        ApiError: UNSUPPORTED_ASSIGNOR.
    """
    if not member.client_assignors or not others:
        return
    lists = [supported(other) for other in others]
    common = _common_versions(lists)
    refused: list[str] = []
    for each in member.client_assignors:
        if common.get(each.name) is None:
            continue
        if _newest_common([each, *(one for named in lists for one in named if one.name == each.name)]) is not None:
            return
        refused.append(f"{each.name} in versions {each.minimum_version} to {each.maximum_version}")
    if refused:
        message = f"ClientAssignors {', '.join(refused)} can't be used with those of the group's other members."
        raise ApiError(Errors.UNSUPPORTED_ASSIGNOR, message)


def check_client_assignors(assignors: Iterable[ClientAssignor]) -> None:
    """Checks what can be checked of a member's list without its group.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    names = set()
    for each in assignors:
        complaint = None
        if not each.name.strip():
            complaint = "ClientAssignors can't have an empty Name."
        elif each.name in names:
            complaint = f"ClientAssignors name {each.name} twice."
        elif each.minimum_version < -1:
            complaint = f"MinimumVersion of {each.name} is {each.minimum_version}, expected at least -1."
        elif each.maximum_version < max(0, each.minimum_version):
            complaint = (
                f"MaximumVersion of {each.name} is {each.maximum_version}, expected at least 0 and MinimumVersion."
            )
        if complaint is not None:
            raise ApiError(Errors.INVALID_REQUEST, complaint)
        names.add(each.name)


def asks_anew(old: ConsumerMember, new: ConsumerMember) -> bool:
    """Returns whether a member's assignors have changed so that a new assignment is wanted.

    A reason that goes back to 0 asks for nothing.
    """
    before = {each.name: each.reason for each in old.client_assignors}

    def wish(each: ClientAssignor) -> tuple[object, ...]:
        reason = each.reason or before.get(each.name, 0)
        return each.name, each.minimum_version, each.maximum_version, reason, each.metadata_version, each.metadata

    return [wish(each) for each in new.client_assignors] != [wish(each) for each in old.client_assignors]
