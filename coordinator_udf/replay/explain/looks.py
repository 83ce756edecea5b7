"""When a broker looks for offsets that have expired, and for empty groups that have none left.

It does so in an interval that begins as it loads the shard, mostly long before the log: at which moments is not in the
log. It shows where a group that was empty is gone.

Source: GroupCoordinatorShard.cleanupGroupMetadata.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from coordinator_udf.log.rows import control_rows
from coordinator_udf.replay.explain.machine import Given, GroupMachine, control_row
from coordinator_udf.replay.explain.steps import Row, Step, request_of
from coordinator_udf.replay.explain.supposed_rows import LOOK, with_supposed

#: What begins a shard's life: it looks in an interval from then on.
_LOADS: Final = frozenset({"LoadEnd", "Failover"})
#: A look explains few answers of a group. Where more than so many stay unexplained something else is wrong, and each
#: try costs a search of all of them. With half and with double the logs of drawn settings come out the same.
MOST_UNEXPLAINED: Final = 16
#: Rows that were put between those of the log have no number yet.
_UNNUMBERED: Final = {"offset": 0}


def with_look(rows: Sequence[Row], partition: int, at_ms: int, interval_ms: int) -> list[Row] | None:
    """Returns a shard's rows with looks so that one is at a time; None if that is no news.

    Args:
        rows: the shard's, in order, which begin with its load.
        partition: the shard.
        at_ms: when there is to be a look.
        interval_ms: the time between two looks.
    """
    loads = [row for row in rows if row["api"] in _LOADS]
    loads_ms = [row["log_ts"] for row in loads]
    # When it was loaded again is in the log, and so are its looks from then on.
    if not loads_ms or any(loads_ms[0] < load_ms <= at_ms for load_ms in loads_ms):
        return None
    since_ms = (at_ms - loads_ms[0]) % interval_ms
    if not since_ms or any(row["api"] == LOOK for row in rows):
        return None
    first_ms = loads_ms[0] + since_ms
    look = {**loads[0], **control_rows(partitions=1, log_ts=first_ms, api=LOOK)[0], "partition": partition}
    return with_supposed(rows, [look])


def times_of_looks(
    machine: GroupMachine, rows: Sequence[Row], unexplained: Mapping[str, Step], interval_ms: int
) -> list[int]:
    """Returns the times at which a look may explain answers: those nearest before one of them first.

    In each gap between two rows in which it would change the group so that the next of them is right; and after an
    answer before which one changed it.

    Args:
        machine: has nobody heard of the group; it is somewhere else afterwards.
        rows: what happens to the group, in the order that was found, from the shard's load on.
        unexplained: by request, the steps whose answers nothing explains.
        interval_ms: the time between two looks.

    Raises:
        PoisonRow: a handler raised.
    """
    answers_ms = sorted(step.latest_ms for step in unexplained.values())
    found: list[tuple[int, int]] = []
    began_ms: int | None = None
    before_ms = 0
    for place, row in enumerate(rows):
        at_ms = row["log_ts"]
        if row["api"] in _LOADS:
            began_ms = at_ms
        answer_ms = _next(answers_ms, at_ms, interval_ms)
        if before_ms < at_ms and answer_ms is not None and _is_changed(machine, before_ms):
            here = machine.snapshot()
            look_ms = (before_ms + at_ms + 1) // 2
            machine.handle(control_row(0, look_ms, LOOK, ""))
            if _is_next_right(machine, rows[place:], unexplained):
                found.append((answer_ms - at_ms, look_ms))
            machine.restore(here)
        while (due_ms := machine.next_timer()[0]) <= at_ms:
            is_look = began_ms is not None and (due_ms - began_ms) % interval_ms == 0
            answer_ms = _next(answers_ms, due_ms, interval_ms)
            if is_look and answer_ms is not None and _is_changed(machine, due_ms):
                found.append((answer_ms - due_ms, answer_ms))
            machine.fire(due_ms)
        _handle(machine, row)
        before_ms = at_ms
    return list(dict.fromkeys(at_ms for _, at_ms in sorted(found)))


def _is_next_right(machine: GroupMachine, rows: Sequence[Row], unexplained: Mapping[str, Step]) -> bool:
    """Returns whether of the answers that nothing explained the next one is the broker's if all goes on as it does."""
    for row in rows:
        given: list[Given] = []
        while (due_ms := machine.next_timer()[0]) <= row["log_ts"]:
            given += machine.fire(due_ms)
        given += _handle(machine, row)
        for request_id, body in given:
            if request_id in unexplained:
                return unexplained[request_id].is_answered_by(body)
    return False


def _handle(machine: GroupMachine, row: Row) -> list[Given]:
    return machine.handle(request_of({**_UNNUMBERED, **row}))


def _next(answers_ms: Sequence[int], at_ms: int, interval_ms: int) -> int | None:
    """Returns the first of the answers' times that is less than an interval later; None if there is none."""
    place = bisect_left(answers_ms, at_ms)
    return answers_ms[place] if place < len(answers_ms) and answers_ms[place] < at_ms + interval_ms else None


def _is_changed(machine: GroupMachine, at_ms: int) -> bool:
    """Returns whether a look at a time changes the group, which stays as it is."""
    here = machine.snapshot()
    machine.handle(control_row(0, at_ms, LOOK, ""))
    there = machine.snapshot()
    machine.restore(here)
    return (here.groups, here.committed) != (there.groups, there.committed)
