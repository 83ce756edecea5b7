"""What poll threw and the application wasn't told yet."""

from __future__ import annotations

from collections import deque
from threading import Lock

from coordinator_udf.members.outputs import ErrorRaised


class UntoldErrors:
    """Is filled by the member's thread, and emptied by that of its application.

    Attributes:
        has_thrown: whether poll threw and the application hasn't asked on since, after it was told all.
    """

    def __init__(self) -> None:
        self._errors: deque[ErrorRaised] = deque()
        self._lock = Lock()
        self.has_thrown = False

    def add(self, error: ErrorRaised) -> None:
        """Keeps what poll threw."""
        with self._lock:
            self.has_thrown = True
            self._errors.append(error)

    def take(self) -> ErrorRaised | None:
        """Returns what poll threw, each once; None once the application was told all."""
        with self._lock:
            self.has_thrown = bool(self._errors)
            return self._errors.popleft() if self._errors else None
