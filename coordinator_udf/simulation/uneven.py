"""Finds groups whose members have unequal shares at a world's end, where their assignor promises equal ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.history import History
from coordinator_udf.simulation.plan import MemberPlan, WorldPlan
from coordinator_udf.simulation.unsettled import LivingOwners, wanted_topics
from coordinator_udf.simulation.violation import Violation

#: Assignors that give each member as much as another, or one partition less, of all topics or (range) of each; they do
#: where all members want the same. Of classic ones the end of the class's name.
_OF_ALL: Final = ("uniform", "RoundRobinAssignor", "StickyAssignor")
_OF_EACH: Final = ("range", "RangeAssignor")


def even_groups(plan: WorldPlan) -> dict[str, bool]:
    """Returns the groups whose members are to have equal shares, with whether of each topic.

    Those of one protocol whose members all name the same assignors, and keep to the protocol.
    """
    groups: dict[str, list[MemberPlan]] = defaultdict(list)
    for member in plan.members:
        groups[member.group_id].append(member)
    found = {}
    for group_id, members in groups.items():
        named = {(member.is_kip_848, _assignor(member, plan)) for member in members}
        (_, assignor), *others = named
        if assignor is not None and not others and all(member.habit is None for member in members):
            found[group_id] = assignor.endswith(_OF_EACH)
    return found


def _assignor(member: MemberPlan, plan: WorldPlan) -> str | None:
    """Returns the assignor that a group has if all its members are like one; None if it isn't known to give equally."""
    config = member.config()
    if member.is_kip_848:
        default = None if "group.consumer.assignors" in plan.settings or config.group_local_assignors else "uniform"
        assignor = config.group_remote_assignor or default
    else:
        assignor = config.partition_assignment_strategy[0]
    return assignor if assignor is not None and assignor.endswith((*_OF_ALL, *_OF_EACH)) else None


def uneven(history: History, living: LivingOwners, without_place: AbstractSet[str]) -> Iterator[Violation]:
    """Yields the groups in which somebody has two partitions more than another one.

    Told of groups that are settled: whose living members, who all want the same, own all of it.
    """
    waiting = {one.group_id for one in history.waiting}
    # A classic leader with old metadata has assigned topics that there aren't any more.
    not_told = without_place | history.known_partitions.keys()
    for group_id, (alive, owners) in living.items():
        if group_id not in history.even_groups or group_id in waiting or alive & not_told:
            continue
        wishes = {frozenset(wanted_topics(history, process)) for process in alive}
        topics = sorted(next(iter(wishes))) if len(wishes) == 1 else []
        partitions = [TopicPartition(topic, number) for topic in topics for number in range(history.partitions[topic])]
        owned = {partition: owners.of(partition) for partition in partitions}
        if not all(len(names) == 1 and names <= alive for names in owned.values()):
            continue
        counted: dict[str, list[str]] = defaultdict(list)
        for partition, names in owned.items():
            counted[partition.topic if history.even_groups[group_id] else ""] += names
        for topic, processes in counted.items():
            yield from _told(history, group_id, topic, processes, alive)


def _told(
    history: History, group_id: str, topic: str, processes: Collection[str], alive: AbstractSet[str]
) -> Iterator[Violation]:
    counts = Counter(processes)
    least, most = min(alive, key=lambda name: (counts[name], name)), max(alive, key=lambda name: (counts[name], name))
    if counts[most] - counts[least] > 1:
        of_what = f" of {topic}" if topic else ""
        detail = f"{most} has {counts[most]} partitions{of_what} at the end, and {least} has {counts[least]}"
        yield Violation(history.end_ms, group_id, "uneven", detail)
