"""The one thread in which all members of a recording ran.

A member that waited inside of a call (a close, say) let others go on; if one of these began to wait as well (a leader,
for metadata), the first could go on only when that one had. So its call may have ended later than its time was over.
"""

from __future__ import annotations

from collections.abc import Hashable

from msgspec.structs import replace

from coordinator_udf.members.inputs import Input, Metadata


class OneThread:
    """Who waits inside of whose waiting."""

    def __init__(self) -> None:
        self._waiting: list[Hashable] = []
        self._free_at_ms: dict[Hashable, int] = {}

    def note(self, member: Hashable, now_ms: int, *, is_waiting: bool) -> None:
        """Takes note of whether a member waits after what has happened to it."""
        if is_waiting and member not in self._waiting:
            self._waiting.append(member)
        elif not is_waiting and member in self._waiting:
            was_on_top = self._waiting[-1] == member
            self._waiting.remove(member)
            self._free_at_ms.pop(member, None)
            if was_on_top and self._waiting:
                self._free_at_ms[self._waiting[-1]] = now_ms

    def is_held(self, member: Hashable) -> bool:
        """Tells whether another member waits inside of this one's waiting."""
        return member in self._waiting and self._waiting[-1] != member

    def free_at_ms(self, member: Hashable) -> int:
        """Returns when the last one that held the member had gone on; 0 if there was none."""
        return self._free_at_ms.get(member, 0)


def came_before(event: Input, came_ms: int) -> Input:
    """Returns what came while a member was held: a client knows of the cluster at once, of the rest when it polls."""
    return replace(event, came_ms=came_ms) if isinstance(event, Metadata) else event
