"""What must hold in every world, and where it didn't.

A partition has one owner at a time, as far as the protocols promise it: a member that is cut off or stalled may believe
to own what the coordinator has given to another once its session is over, so an owner that the coordinator has removed
doesn't count, nor one whose application stands still, nor one whose group.instance.id another process has joined with
by the classic protocol, before it hears of that. Nor does a member break a promise that is given partitions after
it was removed, and before it heard of it: it finishes what it had been told before. Neither does one that has left by
itself, whose application is told in one poll what the member was given before that, and that it lost what it had,
however long its callbacks take.

A commit that was acknowledged stays, until one of a higher offset is, whenever somebody asks for it: applications read
on from what is committed, so only a process that doesn't know that its partitions are another's could commit less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import islice

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.crossed_assignments import CrossedAssignments
from coordinator_udf.simulation.excused import Excused
from coordinator_udf.simulation.expired_offsets import deleted_too_early
from coordinator_udf.simulation.falling_numbers import falling_numbers
from coordinator_udf.simulation.fencing import ended_without_cause, not_fenced
from coordinator_udf.simulation.full_groups import NO_WAY_BACK, OVER_FULL, PUT_OUT, FullGroups
from coordinator_udf.simulation.history import ApplicationEvent, Commit, History
from coordinator_udf.simulation.join_phases import join_phases
from coordinator_udf.simulation.outlasted import outlasted
from coordinator_udf.simulation.ownership import Owners
from coordinator_udf.simulation.poll_intervals import kept_too_long
from coordinator_udf.simulation.sent_too_seldom import sent_too_seldom
from coordinator_udf.simulation.server_errors import TOO_EARLY, ServerErrors
from coordinator_udf.simulation.short_polls import SHORT_POLL
from coordinator_udf.simulation.type_changes import TypeChanges
from coordinator_udf.simulation.uncommitted import uncommitted
from coordinator_udf.simulation.uneven import uneven
from coordinator_udf.simulation.unheeded import unheeded
from coordinator_udf.simulation.unsettled import living_owners, unsettled
from coordinator_udf.simulation.violation import Violation, named
from coordinator_udf.simulation.without_cause import sent_without_cause
from coordinator_udf.simulation.wrong_callbacks import GIVEN_UP_TWICE, wrong_callbacks

#: A classic member waits for the lost answer to its JoinGroup as long as a rebalance may take.
LOST_JOIN = "lost join"
#: A member's application isn't told of all partitions that it has lost.
KEPT_UNAWARES = "kept unawares"
#: A commit of a connection that its member has given up comes after one of the next connection.
LATE_COMMIT = "late commit"
#: A commit that is tried again, for a topic of it is gone, holds what its member had read when it was refused.
OLD_RETRY = "old retry"
#: A group that was classic for a moment gives a member what another one has.
FORGOTTEN_OWNER = "forgotten owner"
#: A member that says what it owned before, as it is given more, has some of that taken back, and given to another.
CROSSED_ASSIGNMENT = "crossed assignment"
#: What a poll may tell an application of before it tells it what it lost.
_GIVES_OR_TAKES = frozenset({"assigned", "revoked"})
#: What follows from Kafka's protocol and clients as they are (docs/found-in-kafka.md shows how).
KAFKAS_OWN = frozenset(
    {
        LOST_JOIN,
        KEPT_UNAWARES,
        LATE_COMMIT,
        OLD_RETRY,
        GIVEN_UP_TWICE,
        FORGOTTEN_OWNER,
        CROSSED_ASSIGNMENT,
        SHORT_POLL,
        NO_WAY_BACK,
        OVER_FULL,
        PUT_OUT,
        TOO_EARLY,
    }
)


def violations(history: History) -> list[Violation]:
    """Returns what must not be in a world, in the order of time."""
    full = FullGroups(history)
    without_place = full.without_place()
    failures = ServerErrors(history)
    living = living_owners(history)
    why = _WhyTwo(history)
    found = [
        *_two_owners(history, why),
        *not_fenced(history),
        *ended_without_cause(history),
        *kept_too_long(history),
        *join_phases(history),
        *outlasted(history),
        *uncommitted(history),
        *sent_without_cause(history),
        *sent_too_seldom(history),
        *unheeded(history),
        *wrong_callbacks(history),
        *falling_numbers(history),
        *_commits(history, why),
        *deleted_too_early(history),
        *unsettled(history, living, without_place),
        *uneven(history, living, without_place),
        *full.violations(),
        *failures.violations,
        *_waiting(history, full, failures.too_early | without_place),
        *_too_long(history, full, failures.too_early),
    ]
    return sorted(found, key=lambda violation: violation.ts_ms)


class _WhyTwo:
    """Why a partition has two owners, or commits of two. Few worlds have any, so what tells of it is read then."""

    def __init__(self, history: History) -> None:
        self._history = history

    @cached_property
    def _type_changes(self) -> TypeChanges:
        return TypeChanges(self._history)

    @cached_property
    def _crossed(self) -> CrossedAssignments:
        return CrossedAssignments(self._history)

    def kind(self, given: ApplicationEvent, partition: TopicPartition, others_ms: Mapping[str, int]) -> str:
        """Returns the kind of the violation that a partition is given to a process.

        Args:
            others_ms: when it was given to the others that have it, in milliseconds since the epoch.
        """
        others = others_ms.items()
        if all(self._type_changes.forgot(given.group_id, other, at_ms, given.ts_ms) for other, at_ms in others):
            return FORGOTTEN_OWNER
        if all(self._crossed.took(other, partition, at_ms, given.ts_ms) for other, at_ms in others):
            return CROSSED_ASSIGNMENT
        return "two owners"

    def kind_of_commit(self, after: Commit) -> str:
        """Returns the kind of the violation that a process commits less than another one did that has its partition."""
        if self._crossed.took(after.process, after.partition, _given_ms(self._history, after), after.ts_ms):
            return CROSSED_ASSIGNMENT
        return "overtaken commit"


def _two_owners(history: History, why: _WhyTwo) -> Iterator[Violation]:
    owners: dict[str, Owners] = defaultdict(Owners)
    excused = Excused(history)
    given_ms: dict[tuple[str, str, TopicPartition], int] = {}
    for place, event in enumerate(history.events):
        process = event.process
        excused.take(place, event)
        is_over = excused.is_told_late(process) and event.event in _GIVES_OR_TAKES and _loses_next(history, place)
        if event.event == "assigned":
            for partition in event.partitions:
                others = sorted(
                    other
                    for other in owners[event.group_id].of(partition) - {process} - excused.now
                    if not history.is_another(partition.topic, given_ms[event.group_id, other, partition], event.ts_ms)
                )
                others_ms = {other: given_ms[event.group_id, other, partition] for other in others}
                given_ms[event.group_id, process, partition] = event.ts_ms
                if others and process not in excused.now and not is_over:
                    detail = f"{named([partition])} was given to {process} and is {', '.join(others)}'s"
                    untold = excused.is_told_late(process) and not owners[event.group_id].owned_by(process)
                    # Whoever had nothing isn't told that it lost anything.
                    kind = KEPT_UNAWARES if untold else why.kind(event, partition, others_ms)
                    yield Violation(event.ts_ms, event.group_id, kind, detail)
        if is_over:
            excused.hears(process)
        if event.event == "lost":
            yield from _kept_unawares(event, owners[event.group_id])
        owners[event.group_id].take(event)


def _loses_next(history: History, place: int) -> bool:
    """Tells whether what an application is told next is that it lost what it had."""
    process = history.events[place].process
    following = (event.event for event in islice(history.events, place + 1, None) if event.process == process)
    return next(following, None) == "lost"


def _kept_unawares(event: ApplicationEvent, owners: Owners) -> Iterator[Violation]:
    """Yields what a member loses without its application being told of it."""
    kept = owners.owned_by(event.process) - set(event.partitions)
    if kept:
        detail = f"{event.process} is not told that it lost {named(kept)} with its other partitions"
        yield Violation(event.ts_ms, event.group_id, KEPT_UNAWARES, detail)


def _commits(history: History, why: _WhyTwo) -> Iterator[Violation]:
    """Yields commits that were acknowledged, and overtaken by one of an earlier owner or lost."""
    for before, after in history.overtaken:
        if before.process == after.process and after.process in history.misbehaving:
            # It harms itself: the partition is its own.
            continue
        # Where a topic was made again, whoever was given it before reads on until it is told that it has lost it.
        since_ms = min(before.ts_ms, _given_ms(history, after))
        if history.is_another(after.partition.topic, since_ms, after.ts_ms):
            continue
        where = f"{after.partition.topic}-{after.partition.partition}"
        detail = (
            f"{after.process} committed {after.offset} of {where} after {before.process} had committed {before.offset}"
        )
        kind = why.kind_of_commit(after) if before.process != after.process else "overtaken commit"
        if before.process == after.process and (after.is_late or after.is_retry):
            kind = LATE_COMMIT if after.is_late else OLD_RETRY
        yield Violation(after.ts_ms, after.group_id, kind, detail)
    for commit in history.lost:
        where = f"{commit.partition.topic}-{commit.partition.partition}"
        detail = f"offset {commit.offset} of {where}, which {commit.process} committed, is not there any more"
        yield Violation(commit.ts_ms, commit.group_id, "lost commit", detail)


def _given_ms(history: History, commit: Commit) -> int:
    """Returns when a commit's process was last given its partition before; the commit's time if it never was."""
    return max(
        (
            event.ts_ms
            for event in history.events
            if event.process == commit.process
            and event.event == "assigned"
            and event.ts_ms <= commit.ts_ms
            and commit.partition in event.partitions
        ),
        default=commit.ts_ms,
    )


def _waiting(history: History, full: FullGroups, refused: Collection[str]) -> Iterator[Violation]:
    """Yields who is neither stable nor gone at the end, but for those that are refused for good or find no place."""
    for one in history.waiting:
        if one.process in refused:
            continue
        turned_away_ms = full.turned_away_ms(one.process, one.since_ms, history.end_ms)
        since_ms = one.since_ms if turned_away_ms is None else turned_away_ms
        may_wait = history.loses_connections or turned_away_ms is not None
        if one.for_lost_join:
            detail = f"{one.process} still waits for the answer to a JoinGroup that got lost"
            yield Violation(history.end_ms, one.group_id, LOST_JOIN, detail)
        elif not may_wait or history.end_ms - since_ms >= (history.quiet_ms or 0):
            # Where connections get lost up to the end, or groups are full, that may have happened just before it.
            detail = f"{one.process} waits at the end, long after the last fault"
            yield Violation(history.end_ms, one.group_id, _waits_for(history, one.group_id), detail)


def _waits_for(history: History, group_id: str) -> str:
    """Returns the kind of who waits in a group for another reason than a lost answer."""
    return SHORT_POLL if group_id in history.short_polls else "waiting"


def _too_long(history: History, full: FullGroups, refused: Collection[str]) -> Iterator[Violation]:
    """Yields who wasn't stable for longer than it may take after the last fault, and was at the end."""
    if history.quiet_ms is None:
        return
    for one in history.unsettled:
        if one.process in refused:
            continue
        turned_away_ms = full.turned_away_ms(one.process, one.since_ms, one.until_ms)
        since_ms = max(one.since_ms, history.quiet_from_ms, turned_away_ms or 0)
        if one.until_ms - since_ms > history.quiet_ms:
            is_lost = any(
                process == one.process and one.since_ms <= ts_ms <= one.until_ms
                for ts_ms, process in history.lost_joins
            )
            detail = (
                f"{one.process} wasn't stable for {(one.until_ms - since_ms) / 1000:.1f} s when all faults were over, "
                f"expected {history.quiet_ms / 1000:g} s at most"
            )
            kind = LOST_JOIN if is_lost else _waits_for(history, one.group_id)
            yield Violation(since_ms + history.quiet_ms, one.group_id, kind, detail)
