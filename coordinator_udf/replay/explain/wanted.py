"""Which groups of a broker's log orders are looked for, by the answers that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from coordinator_udf.protocol.partitioner import partition_for
from coordinator_udf.replay.explain.results import GroupKey
from coordinator_udf.replay.explain.steps import Row, named_groups, part_of
from coordinator_udf.replay.inputs.broker_log.undecided import LogFacts
from coordinator_udf.replay.judge.compare import Difference
from coordinator_udf.replay.recording import ReplaySource
from schemas.requests import CONTROL_APIS


def groups_in_lists(
    source: ReplaySource, differing: Mapping[str, Difference], facts: LogFacts
) -> dict[str | None, list[GroupKey]]:
    """Returns by its request the groups that a list of all told otherwise: what it says of each is one more answer."""
    found: dict[str | None, list[GroupKey]] = {}
    for request_id, difference in differing.items():
        if difference.recorded is None or difference.ours is None:
            continue
        theirs, ours = (
            {group["groupId"]: group for group in side["body"].get("groups") or ()}
            for side in (difference.recorded, difference.ours)
        )
        found[request_id] = [
            (partition_for(group_id, source.partitions), group_id)
            for group_id, told in theirs.items()
            if group_id in ours and told != ours[group_id] and facts.knows(facts.entries[request_id], group_id)
        ]
    return found


def groups_that_differ(rows: Sequence[Row], differing: Mapping[str, Difference], facts: LogFacts) -> list[GroupKey]:
    """Returns the groups that rows ask about of which an answer differs, and the log can tell what is right."""
    found: set[GroupKey] = set()
    for row in rows:
        difference = differing.get(row["request_id"] or "")
        if difference is None or row["api"] in CONTROL_APIS:
            continue
        found |= {
            (row["partition"], group_id)
            for group_id in named_groups(row)
            if row["group_id"] is not None or _differs_in(difference, group_id, facts)
        }
    return sorted(found)


def _differs_in(difference: Difference, group_id: str, facts: LogFacts) -> bool:
    """Returns whether an answer about several groups differs in one of which the log can tell what is right."""
    if difference.recorded is None or difference.ours is None:
        return True
    sides = [
        {"body": part_of(difference.api, side["body"], group_id)} for side in (difference.recorded, difference.ours)
    ]
    part = msgspec.structs.replace(difference, recorded=sides[0], ours=sides[1])
    return sides[0] != sides[1] and facts.undecided(part) is None
