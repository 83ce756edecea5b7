"""What the answers to the first members of classic groups say of `group.initial.rebalance.delay.ms`.

A new group waits for the delay, and for one more as often as somebody joins meanwhile (GroupMetadataManager's initial
join): how long it waited is a whole number of delays, and who joined when tells of how many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from coordinator_udf.protocol.errors import Errors
from coordinator_udf.replay.explain.expiry_bounds import Bound
from coordinator_udf.replay.inputs.broker_log.line import Entry

DELAY: Final = "group.initial.rebalance.delay.ms"

_US: Final = 1_000
#: So late a timer may fire, and so far apart the members of a generation may be answered, in milliseconds.
_LATE_MS: Final = 250


class _Joined(NamedTuple):
    """A member of a first generation.

    Attributes:
        answered_ms: when it was answered.
        joined_ms: when it joined.
        rebalance_ms: for how long it lets others wait.
        members: how many members it was told of.
        ts: the answer's time.
    """

    answered_ms: int
    joined_ms: int
    rebalance_ms: int
    members: int
    ts: int


class InitialDelays:
    """Collects the first generations of a log's classic groups."""

    def __init__(self) -> None:
        """Begins with none."""
        self._joined: dict[str, list[_Joined]] = {}

    def note(self, entry: Entry, answer: Mapping[str, Any]) -> None:
        """Takes note of an answer to a JoinGroup."""
        if answer.get("errorCode") == Errors.NONE and answer.get("generationId") == 1:
            request, members = entry.request, len(answer.get("members") or ())
            timeout_ms = request.get("rebalanceTimeoutMs")
            if not isinstance(timeout_ms, int) or timeout_ms < 0:
                timeout_ms = int(request.get("sessionTimeoutMs") or 0)
            joined = _Joined(entry.answered_us // _US, entry.handled_us // _US, timeout_ms, members, entry.log_ts)
            self._joined.setdefault(str(request.get("groupId")), []).append(joined)

    def bounds(self) -> Iterator[Bound]:
        """Yields what they say together."""
        for of_group in self._joined.values():
            for generation in _generations(sorted(of_group)):
                # Who joined and was gone again is not answered, and made the group wait all the same.
                if max(each.members for each in generation) == len(generation):
                    yield from _of_generation(generation)


def _generations(joined: Sequence[_Joined]) -> Iterator[list[_Joined]]:
    """Yields the members that were answered at one moment: a group that was deleted may have a first one again."""
    generation: list[_Joined] = []
    for each in joined:
        if generation and each.answered_ms - generation[-1].answered_ms > _LATE_MS:
            yield generation
            generation = []
        generation.append(each)
    if generation:
        yield generation


def _of_generation(generation: Sequence[_Joined]) -> Iterator[Bound]:
    first, *others = sorted(generation, key=lambda each: each.joined_ms)
    waited_ms = min(each.answered_ms for each in generation) - first.joined_ms
    # A group waits no longer than the rebalance timeout that its first member brought.
    if waited_ms > first.rebalance_ms - _LATE_MS:
        return
    offsets = [each.joined_ms - first.joined_ms for each in others]
    joined = [offset for offset in offsets if offset < waited_ms]
    fitting = [count for count in range(1, len(generation) + 1) if _fits(waited_ms, count, joined)]
    if len(fitting) == 1:
        (count,) = fitting
        ts = max(each.ts for each in generation)
        yield Bound(ts, DELAY, max(waited_ms - _LATE_MS, 0) // count, max(waited_ms, 0) // count)


def _fits(waited_ms: int, count: int, offsets: Sequence[int]) -> bool:
    """Returns whether somebody joined during each of so many delays but the last, and nobody during that."""
    # Nobody joined for a delay at the end, nor for two: of large groups few numbers are left to look at.
    quiet_ms = waited_ms - (offsets[-1] if offsets else 0)
    if not waited_ms <= count * quiet_ms <= 2 * waited_ms:
        return False
    return {offset * count // waited_ms for offset in offsets} == set(range(count - 1))
