"""Groups of members of many libraries: made, watched while something happens to their coordinator, and well again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.gateway.fleet import Fleet, Member, Place
from tests.gateway.history import Commit
from tests.waiting import wait


@dataclass
class Group:
    """A group of members that are to share places.

    Attributes:
        acknowledged: the commits that a member was told are done.
    """

    name: str
    members: Sequence[Member]
    places: set[Place]
    acknowledged: list[Commit] = field(default_factory=list)

    def is_shared(self) -> bool:
        """Whether each place has one owner, and each member a place."""
        owned = [member.assignment for member in self.members]
        return all(owned) and sum(map(len, owned)) == len(self.places) and set().union(*owned) == self.places

    def commits(self, offset: int) -> bool:
        """Whether each member's commit goes through; all commit at once."""
        places = [min(member.assignment) for member in self.members]
        with ThreadPoolExecutor(len(self.members)) as pool:
            done = list(pool.map(lambda member, place: member.commits(place, offset), self.members, places))
        for member, place, is_done in zip(self.members, places, done, strict=True):
            if is_done and not member.tells_of_sending_only:
                self.acknowledged.append((self.name, *place, offset))
        return all(done)

    def story(self) -> str:
        """What its members have to say."""
        alive = [(m.name, sorted(m.assignment), m.process.poll()) for m in self.members]
        return f"{self.name}: {alive}\n" + "\n".join(member.tail() for member in self.members)


def start(fleet: Fleet, clients: Mapping[str, Sequence[str]], places: set[Place]) -> list[Group]:
    """Groups by their names; those whose name begins with "new" are of KIP-848. Returns when all share their places."""
    topics = sorted({topic for topic, _ in places})
    groups = []
    for name, libraries in clients.items():
        more = {"protocol": "consumer", "strategy": "uniform"} if name.startswith("new") else {}
        members = [fleet.start(client, group=name, topics=topics, **more) for client in libraries]
        groups.append(Group(name, members, places))
    for group in groups:
        wait(group.is_shared, f"{group.name} shares {len(places)} places", group.story)
    return groups


def acknowledged(groups: Sequence[Group]) -> list[Commit]:
    """The commits that all groups' members were told are done."""
    return [commit for group in groups for commit in group.acknowledged]


def wait_until_well(groups: Sequence[Group], timeout_s: float) -> float:
    """Until all groups share their places and each member's commit goes through; in how many seconds that was."""
    began = time.monotonic()
    with ThreadPoolExecutor(len(groups)) as pool:
        for _ in pool.map(lambda group: _wait_until_well(group, began + timeout_s), groups):
            pass
    return time.monotonic() - began


def _wait_until_well(group: Group, deadline: float) -> None:
    offset = 1_000
    while True:
        wait(group.is_shared, f"{group.name} is well again", group.story, deadline - time.monotonic())
        offset += 1
        if group.commits(offset) and group.is_shared():
            return
