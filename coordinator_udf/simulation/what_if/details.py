"""What became of each member and partition of a group, beside the group's measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from coordinator_udf.simulation.history import ApplicationEvent, History
from coordinator_udf.simulation.measures import Born, stopped_each_ms, unowned_each_ms

#: How an event's detail begins that tells what a poll threw.
_OF_POLL = "poll: "


@dataclass(frozen=True, slots=True)
class RefusedMember:
    """A process that was refused and never assigned anything after that.

    Attributes:
        error: what its polls threw: Java's class, and what it says.
        share: in what part of the worlds, from 0 to 1.
    """

    error: str
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Details:
    """What happened to a group's members and partitions in a span of time.

    Attributes:
        refused_commits: OffsetCommits of which a partition was refused.
        stopped_s: of each client, the seconds that its processes stood (`stopped_each_ms`).
        unowned_s: of each partition (TOPIC-NUMBER), the seconds without an owner.
        refused_members: the processes that were refused for good by the end of the span.
    """

    refused_commits: float
    stopped_s: Mapping[str, float]
    unowned_s: Mapping[str, float]
    refused_members: Mapping[str, RefusedMember] = field(default_factory=dict)


def detailed(history: History, group_id: str, partitions: Born, span: tuple[int, int]) -> Details:
    """Looks at one group of a world in a span of milliseconds since the epoch."""
    events = [event for event in history.events if event.group_id == group_id]
    unowned = unowned_each_ms(events, partitions, span)
    return Details(
        sum(group == group_id and span[0] <= ts_ms <= span[1] for ts_ms, group in history.refused),
        {client: time_ms / 1000 for client, time_ms in sorted(stopped_each_ms(events, span).items())},
        {f"{place.topic}-{place.partition}": time_ms / 1000 for place, time_ms in sorted(unowned.items())},
        _refused_members(event for event in events if event.ts_ms <= span[1]),
    )


def mean_of(found: Sequence[Details]) -> Details:
    """Returns the mean of several worlds' details; a client or partition that one of them lacks counts 0 there."""
    return Details(
        round(fmean(one.refused_commits for one in found), 3),
        _mean_each([one.stopped_s for one in found]),
        _mean_each([one.unowned_s for one in found]),
        _share_each([one.refused_members for one in found]),
    )


def _mean_each(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for one in found for name in one)
    return {name: round(fmean(one.get(name, 0.0) for one in found), 3) for name in names}


def _refused_members(events: Iterable[ApplicationEvent]) -> dict[str, RefusedMember]:
    """Returns the processes whose polls threw an error, and that were never assigned anything after that."""
    found: dict[str, str] = {}
    for event in events:
        if event.event == "error" and (event.detail or "").startswith(_OF_POLL):
            found[event.process] = str(event.detail).removeprefix(_OF_POLL)
        elif event.event == "assigned":
            found.pop(event.process, None)
    return {name: RefusedMember(error) for name, error in sorted(found.items())}


def _share_each(found: Sequence[Mapping[str, RefusedMember]]) -> dict[str, RefusedMember]:
    errors = {name: refused.error for one in found for name, refused in one.items()}
    return {
        name: RefusedMember(error, round(fmean(name in one for one in found), 3))
        for name, error in sorted(errors.items())
    }
