"""Compares what a broker's own log tells of rebalances and expulsions with what its request log tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

Row = dict[str, Any]

#: As far apart may moments of the same event be.
APART = timedelta(milliseconds=50)
TIED = timedelta(milliseconds=1)


def rebalance_differences(requests: Sequence[Row], lines: Sequence[Row]) -> Iterator[str]:
    """What is in one and not in the other, or otherwise, where the broker's lines say it at all.

    Args:
        requests: rows of `rebalances` of one group, from its requests.
        lines: the same from the broker's own log.
    """
    left = list(lines)
    for row in requests:
        same = [each for each in left if is_same(row, each)]
        if not same:
            yield f"only in the requests: {told(row)}"
            continue
        found = min(same, key=lambda each: abs(each["started"] - row["started"]))
        left.remove(found)
        # What of one millisecond came first, requests don't tell.
        is_tied = sum(abs(each["started"] - row["started"]) <= TIED for each in requests) > 1
        for column, one, other in unlike(row, found, knows_who=not is_tied):
            yield f"{told(row)}: {column} is {one} in the requests and {other} in the lines"
    for row in left:
        # What a broker that died hadn't answered is in no request log.
        if row["outcome"] != "Lost":
            yield f"only in the lines: {told(row)}"


def is_same(row: Row, line: Row) -> bool:
    """Whether both tell of one rebalance; epochs may follow each other at once."""
    is_one = row["kind"] == "classic" or row["generation"] == line["generation"]
    return bool(is_one and row["kind"] == line["kind"] and abs(row["started"] - line["started"]) <= APART)


def unlike(row: Row, line: Row, *, knows_who: bool) -> Iterator[tuple[str, object, object]]:
    is_untold = line["outcome"] == "NotTold"
    for column in ("joined", "ended"):
        one, other = row[column], line[column]
        # A broker that is lost is so from its last answer on, as far as requests tell.
        is_earlier = column == "ended" and row["outcome"] == line["outcome"] == "Lost" and one < other
        if not is_untold and not is_earlier and not is_near(one, other):
            yield column, one, other
    for column, is_told in (
        # Of a rebalance that never was through a line tells its beginning only.
        ("generation", line["outcome"] != "Lost" or line["generation"] is not None),
        ("outcome", not is_untold),
        ("trigger", line["trigger"] != "EPOCH_BUMPED"),
        ("trigger_member_id", knows_who and line["trigger_member_id"] is not None),
    ):
        if is_told and row[column] != line[column]:
            yield column, row[column], line[column]
    members = line["members_after"]
    if knows_who and members is not None and sorted(row["members_after"] or ()) != sorted(members):
        yield "members_after", row["members_after"], members


def is_near(one: datetime | None, other: datetime | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= APART


def told(row: Row) -> str:
    return f"{row['kind']} {row['generation']} at {row['started']:%H:%M:%S.%f} by {row['trigger']}"


def expulsion_differences(requests: Sequence[Row], lines: Sequence[Row]) -> Iterator[str]:
    """The same of `expulsions`."""
    left = list(lines)
    for row in requests:
        same = [each for each in left if each["member_id"] == row["member_id"] and is_near(each["at"], row["at"])]
        if not same:
            yield f"only in the requests: {row['member_id']} at {row['at']}"
            continue
        left.remove(same[0])
        if same[0]["rule"] != row["rule"]:
            yield f"{row['member_id']} at {row['at']}: {row['rule']} in the requests and {same[0]['rule']} in the lines"
    yield from (f"only in the lines: {row['member_id']} at {row['at']}" for row in left)
