"""What the lines of a broker's own log told of one group so far."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from coordinator_udf.replay.inputs.info_log.events import InfoEvent
from coordinator_udf.replay.inputs.info_log.lines import InfoLine, client_of

CLASSIC: Final = "classic"
#: Groups whose coordinator assigns: of consumers (KIP-848), of share consumers (KIP-932), of Streams (KIP-1071).
MODERN: Final = frozenset({"consumer", "share", "streams"})
#: The broker's assignors of consumer groups; those of others may be anybody's.
_OF_CONSUMERS: Final = frozenset({"uniform", "range"})

_ADDED_STATIC: Final = re.compile(
    r"(?:Adding new|Updating metadata for static) member (?P<member>\S+) with (?:group )?instance ?id "
    r"(?P<instance>[^;]+)"
)


_JOINING: Final = frozenset({InfoEvent.MEMBER_ID_GIVEN, InfoEvent.MEMBER_JOINED})


class Group:
    """What the lines told of one group so far."""

    def __init__(self, static_count: int | None = None) -> None:
        self.state: str | None = None
        self.generation: int | None = None
        self.leader: str | None = None
        #: As the lines told; None where none did.
        self.kind: str | None = None
        self.known: dict[str, None] = {}
        #: How many members there are beside those; None where no line told yet.
        self.unknown: int | None = None
        self.was_classic = False
        #: Who was missing when the join phase ended.
        self.absent: tuple[str, ...] = ()
        #: Members that the reason of a rebalance said to have left; older versions write the line that says so later.
        self.left: set[str] = set()
        #: Members that are known to be static: their ids begin with the instance id and not with the client id.
        self.static: set[str] = set()
        #: Members that were seen to join without an instance id.
        self.dynamic: set[str] = set()
        #: How many static members there are; None where no line told.
        self.static_count = static_count
        #: The line on a member that joins, or that joined before the log begins and joins again.
        self.joining: InfoLine | None = None
        #: The line on a member that was in the group already and asked to join again.
        self.joining_again: InfoLine | None = None

    @property
    def members(self) -> list[str] | None:
        """Who is in the group; None where that isn't known."""
        return list(self.known) if self.unknown == 0 else None

    def client_of(self, member_id: str | None) -> str | None:
        """Returns the client id that a member's id tells; None where it may begin with an instance id."""
        may_be_static = bool(self.static_count) and member_id not in self.dynamic
        return None if may_be_static or member_id in self.static else client_of(member_id)

    def note_instances(self, line: InfoLine) -> None:
        """Takes what a line tells of who is static."""
        self.static.update(static_members(line))
        if line.event in _JOINING and line.member_id is not None and line.group_instance_id is None:
            self.dynamic.add(line.member_id)
        if line.static_count is not None:
            self.static_count = line.static_count

    def add(self, member_id: str | None) -> None:
        """Takes a member in; None where its id isn't told."""
        if member_id is None:
            self.unknown = None if self.unknown is None else self.unknown + 1
        else:
            self.known[member_id] = None

    def remove(self, member_id: str | None) -> None:
        """Takes a member out, be it one of the unknown ones."""
        if member_id in self.known:
            del self.known[member_id]
        elif self.unknown:
            self.unknown -= 1

    def name(self, member_id: str | None) -> None:
        """Names a member that may be one of the unknown ones."""
        if member_id is not None and member_id not in self.known:
            self.known[member_id] = None
            self.unknown = None if self.unknown is None else max(self.unknown - 1, 0)

    def count(self, members: int | None) -> None:
        """Takes it that there are so many members."""
        if members is None:
            return
        if members < len(self.known):
            self.known.clear()
        self.unknown = members - len(self.known)


def static_members(line: InfoLine) -> Iterator[str]:
    """Returns the members that a line shows to be static."""
    if line.group_instance_id is not None and line.member_id is not None:
        yield line.member_id
    added = _ADDED_STATIC.match(line.reason or "")
    if added is not None and added["instance"] not in {"null", "None"}:
        yield added["member"]


def kind_told(line: InfoLine) -> str | None:
    """Returns the kind that a line shows its group to be of; None where it may be of several."""
    told = (line.protocol or "").lower()
    if line.event is InfoEvent.MEMBER_JOINED and told:
        # A consumer group has members that use the classic protocol, too.
        return told if told in MODERN else "consumer"
    if told in MODERN or told == CLASSIC:
        return told
    if line.event is InfoEvent.REGEX_RESOLVED or (
        line.event is InfoEvent.TARGET_COMPUTED and line.assignor in _OF_CONSUMERS
    ):
        return "consumer"
    return None


def modern_kinds(lines: Iterable[InfoLine]) -> dict[str, str]:
    """Returns the first kind that lines tell of each group that isn't classic then."""
    kinds: dict[str, str] = {}
    for line in lines:
        kind = None if line.group_id is None else kind_told(line)
        if line.group_id is not None and kind in MODERN:
            kinds.setdefault(line.group_id, kind)
    return kinds


def static_counts(lines: Iterable[InfoLine]) -> dict[str, int]:
    """Returns how many static members lines tell first that each group has."""
    counts: dict[str, int] = {}
    for line in lines:
        if line.group_id is not None and line.static_count is not None:
            counts.setdefault(line.group_id, line.static_count)
    return counts
