"""A thread beside the main one, which ends when it is told to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Watch:
    """Looks again and again, as what a `BackgroundThread` runs. No error of a look ends it.

    Attributes:
        look: one look; what it raises leaves all as it was until the next.
        every_s: the pause before each look, in seconds.
        expected: the errors that stand for something that may well happen.
        told: what the log says before the text of such an error.
        failed: what the log says with the traceback of any other error.
        log: where that is said.
    """

    look: Callable[[], None]
    every_s: float
    expected: tuple[type[Exception], ...]
    told: str
    failed: str
    log: logging.Logger

    def __call__(self, stop: threading.Event) -> None:
        """Looks until the event is set."""
        while not stop.wait(self.every_s):
            try:
                self.look()
            except self.expected as error:
                self.log.warning("%s: %s", self.told, error)
            except Exception:
                self.log.exception("%s", self.failed)
