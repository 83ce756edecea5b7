"""A thread beside the main one, which ends when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType


class BackgroundThread:
    """A daemon thread with an event that tells it to stop. As a context manager it runs for as long as the context.

    Args:
        run: what the thread does; it returns soon after the event that it is given is set.
        name: the thread's name, as a stack trace shows it.
    """

    def __init__(self, run: Callable[[threading.Event], None], name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=run, args=(self._stop,), name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread.

        Raises:
            RuntimeError: it was started before.
        """
        self._thread.start()

    def stop(self, timeout_s: float | None = None) -> None:
        """Sets the event and waits until the thread has ended; does nothing where it never began.

        Args:
            timeout_s: how long to wait at most; by default for as long as it takes.
        """
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def is_running(self) -> bool:
        """Tells whether the thread began and hasn't ended."""
        return self._thread.is_alive()

    def __enter__(self) -> BackgroundThread:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
