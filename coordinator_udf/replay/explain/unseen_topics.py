"""Supposes topics that a broker's log never names, where only members that subscribed by an expression can have them.

A regular expression matches topics that nobody commits to and that nobody is told to have before the log ends. Which
ones there are isn't in the log, but who gets the partitions of other topics goes by them, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from coordinator_udf.log.topics import metadata_body
from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.protocol.requests import Topic
from coordinator_udf.replay.explain.steps import Row
from coordinator_udf.replay.inputs.broker_log.topic_expressions import matching_name
from coordinator_udf.replay.inputs.broker_log.topics import with_id
from coordinator_udf.replay.inputs.broker_log.undecided import LogFacts
from coordinator_udf.replay.judge.compare import Difference

#: The API whose answers tell of assignments that go by expressions.
_ASSIGNING: Final = "ConsumerGroupHeartbeat"
_METADATA: Final = "TopicMetadata"
#: How many partitions a topic is supposed to have at most where no topic of the log has more: half finds fewer topics,
#: double takes twice as long where there is none to be found.
_MOST_PARTITIONS: Final = 16


def expressions_by_group(facts: LogFacts) -> dict[str, list[str]]:
    """Returns by group the expressions by which members subscribed."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for entry in facts.entries.values():
        regex = entry.request.get("subscribedTopicRegex") if entry.api == _ASSIGNING else None
        group_id = entry.request.get("groupId")
        if not regex or not isinstance(group_id, str) or (entry.response or {}).get("errorCode"):
            continue
        if regex not in found[group_id]:
            found[group_id].append(regex)
    return dict(found)


def unexplained_groups(differences: Iterable[Difference], facts: LogFacts, api: str | None = None) -> set[str]:
    """Returns the groups of which nothing says why an answer differs.

    Args:
        api: whose answers; None for those of all that ask one group.
    """
    found: set[str] = set()
    for difference in differences:
        entry = facts.entries.get(difference.request_id or "")
        if entry is None or difference.undecided is not None or api not in {None, difference.api}:
            continue
        group_id = entry.request.get("groupId")
        if isinstance(group_id, str):
            found.add(group_id)
    return found


def assigned_otherwise(differences: Iterable[Difference], facts: LogFacts) -> set[str]:
    """Returns the groups of which nothing says why a member was assigned something else."""
    return unexplained_groups(differences, facts, _ASSIGNING)


def supposed_topics(rows: Sequence[Row], expressions: Iterable[str]) -> Iterator[Topic]:
    """Yields topics that an expression matches and the log doesn't name, those that are like the log's own first."""
    listed = [topic for row in rows if row["api"] == _METADATA for topic in msgspec.json.decode(row["body"])["topics"]]
    names = {topic["name"] for topic in listed}
    often = [count for count, _ in Counter(topic["partitions"] for topic in listed).most_common()]
    counts = dict.fromkeys([*often, *range(1, _MOST_PARTITIONS + 1)])
    number = sum(name.endswith("unseen") for name in names)
    found = dict.fromkeys(matching_name(regex, f"{number}unseen") for regex in expressions)
    for partitions in counts:
        for name in found:
            if name is not None and name not in names:
                yield with_id(Topic(name, partitions))


def with_topic(rows: Iterable[Row], topic: Topic, shards: Collection[int]) -> list[Row]:
    """Returns rows in which some shards are told of one topic more each time that they are told of all."""
    return [
        {**row, "body": _told_too(row["body"], topic)}
        if row["api"] == _METADATA and row["partition"] in shards
        else row
        for row in rows
    ]


def _told_too(body: str, topic: Topic) -> str:
    told: Mapping[str, Any] = msgspec.json.decode(body)
    return msgspec.json.encode({"topics": [*told["topics"], *metadata_body([topic])["topics"]]}).decode()


def shards_of(groups: Iterable[str], partitions: int) -> frozenset[int]:
    """Returns the shards of groups."""
    return frozenset(partition_for(group_id, partitions) for group_id in groups)
