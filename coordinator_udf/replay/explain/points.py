"""Where a walk through a group's events is and was: what search and walk tell each other. Data."""

from __future__ import annotations

from typing import Final, NamedTuple

from coordinator_udf.replay.explain.results import Inserted
from coordinator_udf.replay.explain.snapshot import Snapshot

#: What ours is where the broker answered and we don't, as JSON.
NOTHING: Final = "null"


class Mismatch(NamedTuple):
    """An answer that the broker didn't give: the step, and what ours would have been as JSON.

    It is `NOTHING` where the broker had answered long ago and we haven't.
    """

    place: int
    ours: str


class Point(NamedTuple):
    """Where a walk is: everything before ``first`` has happened, and of what stands behind it ``done``.

    ``parked`` are the steps whose answers wait, each with the time (ms) by which the broker had answered for certain;
    ``postponed`` those that may come after any that were handled before their windows end.
    """

    snapshot: Snapshot
    first: int
    done: frozenset[int]
    shared: int
    course: int
    armings: int
    inserted: int
    held_ms: int
    loads: int
    parked: frozenset[tuple[int, int]]
    postponed: frozenset[int]


class OtherBegin(NamedTuple):
    """A step that may have begun an interval at another time: the one (ms) that is needed, the interval's length."""

    place: int
    needed_ms: int
    length_ms: int


class Tail(NamedTuple):
    """What a walk noted from a point on."""

    course_from: int
    course: list[tuple[int, int]]
    armings_from: int
    armed_from: list[int]
    armed_slack_ms: list[int]
    inserted_from: int
    inserted: list[Inserted]
    loads_from: int
    loads: list[Point]
