"""Finds where an application's ConsumerRebalanceListener is told what isn't so of its partitions or membership."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

from coordinator_udf.members.inputs import TopicPartition
from coordinator_udf.simulation.history import ApplicationEvent, History, KnownMembership
from coordinator_udf.simulation.violation import Violation, named

#: The application of a KIP-848 member is to give up once more what it has just given up.
GIVEN_UP_TWICE = "given up twice"
_WRONG = "wrong callback"


def wrong_callbacks(history: History) -> Iterator[Violation]:
    """Yields where an application is told what isn't so."""
    yield from _of_partitions(history)
    yield from _of_membership(history)


def _of_partitions(history: History) -> Iterator[Violation]:
    """Yields where an application is given what it has, or is to give up what it hasn't."""
    owned: dict[str, set[TopicPartition]] = defaultdict(set)
    given_up: dict[str, set[TopicPartition]] = defaultdict(set)
    for event in history.events:
        process, told = event.process, set(event.partitions)
        if event.event == "start":
            # What a process had that failed isn't had by the one that is started in its place.
            owned.pop(process, None)
            given_up.pop(process, None)
        has, had = owned[process], given_up[process]
        kind = _WRONG
        if event.event == "assigned":
            wrong, what = has & told, "is given {}, which it has"
            has |= told
            had -= told
        elif event.event in {"revoked", "lost"}:
            wrong, what = told - has, "is to give up {}, which it hasn't"
            if wrong <= had and process in history.kip_848:
                kind = GIVEN_UP_TWICE
            gives_up = told if event.event == "revoked" else told | has
            had |= gives_up
            has -= gives_up
        else:
            continue
        if wrong:
            yield Violation(event.ts_ms, event.group_id, kind, f"{process} {what.format(named(wrong))}")


def _of_membership(history: History) -> Iterator[Violation]:
    """Yields where partitions are lost though their member is one, or are to be given up though it is none.

    A classic member that closes while its group rebalances loses them, too, and one that has left while its close waits
    for something is to give them up.
    """
    known: dict[str, KnownMembership] = {}
    changes = iter(history.memberships)
    change = next(changes, None)
    closes_ms: dict[str, int] = {}
    for place, event in enumerate(history.events):
        while change is not None and change.after <= place:
            known[change.process] = change
            change = next(changes, None)
        process = event.process
        if event.event == "close":
            closes_ms[process] = event.ts_ms
        elif event.event == "start":
            closes_ms.pop(process, None)
        elif process not in history.misbehaving:
            wrong = _denies_membership(event, known.get(process), process in closes_ms)
            if wrong is not None and _is_over_by_then(history, place, closes_ms.get(process)):
                wrong = None
            if wrong is None and not event.partitions:
                wrong = _of_nothing(event, process not in history.kip_848 | history.cooperative)
            if wrong is not None:
                yield Violation(event.ts_ms, event.group_id, _WRONG, f"{process} {wrong}")


def _denies_membership(event: ApplicationEvent, known: KnownMembership | None, is_closing: bool) -> str | None:
    """Returns what is wrong with a callback, by what its member knows of its membership; None if nothing is."""
    if known is None or not event.partitions:
        return None
    is_member = known.number > 0
    if event.event == "lost" and is_member and (known.is_stable or not is_closing):
        return f"is told that it has lost {named(event.partitions)}, and is a member"
    if event.event == "revoked" and not is_member and not is_closing:
        return f"is to give up {named(event.partitions)}, and is no member"
    return None


def _is_over_by_then(history: History, place: int, closes_ms: int | None) -> bool:
    """Tells whether a callback follows from what its member learned in this millisecond, or keeps to itself.

    That is a fatal error, of which the application is told next, or that the last commit of one that closes is refused.
    What a KIP-848 member's thread had given up before its membership was over is told as lost right after that, too.
    """
    event, is_closing = history.events[place], closes_ms is not None
    by_then = history.membership_at(event.process, event.ts_ms)
    if _denies_membership(event, by_then, is_closing) is None:
        return True
    is_lost = event.event == "lost"
    if is_lost and closes_ms is not None and history.refuses_commits(event.group_id, closes_ms, event.ts_ms):
        return True
    following = next((one for one in islice(history.events, place + 1, None) if one.process == event.process), None)
    if following is None:
        return False
    if is_lost:
        return following.event == "error"
    is_lost_next = following.event == "lost" and set(event.partitions) <= set(following.partitions)
    return is_lost_next and event.process in history.kip_848


def _of_nothing(event: ApplicationEvent, is_eager: bool) -> str | None:
    """Returns what is wrong with a callback without partitions: an eager member alone is to give up what it hasn't."""
    if event.event == "lost" or (event.event == "revoked" and not is_eager):
        return f"is told that no partitions are {event.event}"
    return None
