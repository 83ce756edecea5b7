"""The ids of static members that came back under new ones, which the line that tells of it doesn't name.

Later lines do: one that fences the process before names both, and the id of a static classic member begins with its
instance id (GroupMetadataManager.staticMemberJoin and ClassicGroup.generateMemberId).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from coordinator_udf.replay.inputs.info_log.events import InfoEvent
from coordinator_udf.replay.inputs.info_log.lines import InfoLine, client_of


class _Place(NamedTuple):
    """An instance id in a group."""

    group_id: str | None
    instance: str | None


class _Came(NamedTuple):
    """The line that tells that a member came back: its number, and the id that the member had before."""

    number: int
    before: str | None


def with_replacing_members(lines: Sequence[InfoLine]) -> list[InfoLine]:
    """Returns the lines.

    Those of a static member that came back with the id that later lines give it, as far as they do.
    """
    named = list(lines)
    came: dict[_Place, _Came] = {}
    #: Dynamic members may be called as an instance is.
    dynamic: set[str] = set()
    for number, line in enumerate(lines):
        if line.event is InfoEvent.STATIC_MEMBER_REPLACED and line.member_id is None:
            place = _Place(line.group_id, line.group_instance_id)
            if place in came and line.old_member_id != came[place].before:
                at = came[place].number
                named[at] = lines[at]._replace(member_id=line.old_member_id)
            came[place] = _Came(number, line.old_member_id)
        elif line.event in _JOINING and line.member_id is not None and line.group_instance_id is None:
            dynamic.add(line.member_id)
        elif came:
            for place, member_id in _told(line, came):
                if place in came and member_id not in dynamic and member_id != came[place].before:
                    at = came.pop(place).number
                    named[at] = lines[at]._replace(member_id=member_id)
    return named


_JOINING: Final = frozenset({InfoEvent.MEMBER_ID_GIVEN, InfoEvent.MEMBER_JOINED})


def _told(line: InfoLine, came: Mapping[_Place, _Came]) -> Iterator[tuple[_Place, str]]:
    """Yields the members that a line names, each with the instance id that it has if it is static."""
    if line.event is InfoEvent.INSTANCE_FENCED:
        # It names no group, but the process before.
        place = next((place for place, one in came.items() if one.before == line.member_id), None)
        if place is not None and line.old_member_id is not None:
            yield place, line.old_member_id
        return
    told = (line.member_id, *line.members, *line.members_in_reason())
    for member_id in dict.fromkeys(filter(None, told)):
        yield _Place(line.group_id, client_of(member_id)), member_id
