"""What every member machine is, whichever protocol it speaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from coordinator_udf.members.inputs import Input
from coordinator_udf.members.outputs import Output

if TYPE_CHECKING:
    from coordinator_udf.members.metadata import ConsumerMetadata

#: Draws the random factor of a backoff, in Kafka's client evenly from [0.8, 1.2).
Jitter = Callable[[], float]

#: Tells how much later than it is due a thread gets to something, in milliseconds, by the time at which it is due.
Lateness = Callable[[int], int]


class MemberMachine(Protocol):
    """One member of a group. It is made with its settings and a jitter, and first handles a `Tick`."""

    @property
    def metadata(self) -> ConsumerMetadata | None:
        """What it knows of the cluster; None before its first input."""

    @property
    def is_joining(self) -> bool:
        """Whether a classic member has begun to join, and its application hasn't been told yet of how that ended."""

    def handle(self, now_ms: int, event: Input) -> list[Output]:
        """Takes one input and returns all that the member does at this moment, in order.

        Times in milliseconds since the epoch never go back from call to call.
        """

    def next_deadline_ms(self) -> int | None:
        """Returns the time at which the member wants a `Tick`, or None. It may be past: then at once."""

    def call_deadline_ms(self) -> int | None:
        """Returns the time at which the call that the application is blocked in goes on by itself, or None.

        Never before `next_deadline_ms`, which counts it too. A `Tick` at this time comes before all that else happens
        in this millisecond.
        """

    def poll_deadline_ms(self) -> int | None:
        """Returns the time from which on a poll commits automatically.

        None where none ever does, or one is due that waits for the answer to the last one.
        """
