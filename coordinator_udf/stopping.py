"""SIGTERM and Ctrl-C end a command quietly.

A command that is told to stop leaves its contexts in order, so that what is temporary goes, prints nothing, and ends
with 128 and the signal's number, as a shell tells it: 143 or 130. A second signal ends it at once; a third where the
first has to wait for the end of what can't be left half done. A server says what signals do instead.

What a signal raises may get lost in code that others wrote. It is raised again then, unless that code keeps it. A
command that waits for work in another thread, or a process, does so by `result_of` and `as_completed`.
"""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, TypeVar

R = TypeVar("R")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
#: How long what has to be ended first may take, in seconds: a JVM, for the most part. Kubernetes gives a stop 30 s in
#: all, which double exceeds.
_END_S: Final = 20.0
#: After so long what was lost is raised again, in seconds: who lost it is done by then, or loses it anew, and it is
#: raised once more.
_AGAIN_S: Final = 0.01
#: So often it is put off while an error is being handled, which may be the one that took its place on its way out: for
#: as long as the end of what has to be ended may take.
_MOST_PUT_OFF: Final = round(_END_S / _AGAIN_S)
#: So often who waits for other threads looks whether a signal came, in seconds. As often they are told to end.
_LOOK_S: Final = 0.05


class _Told(SystemExit):
    """What a signal raises. It can be looked after, which a SystemExit itself can't."""


class _Stopping:
    """What this process was told, and what is to be done then."""

    def __init__(self) -> None:
        self.watched: list[signal.Signals] = []
        self.ignored: list[signal.Signals] = []
        self.number: int | None = None
        self.pending: int | None = None
        self.is_deferred = False
        self.is_over = False
        self.told: weakref.ref[_Told] | None = None
        self.put_off = 0
        self.first: list[Callable[[], None]] = []
        #: What a signal does instead of ending the command.
        self.instead: Callable[[], None] | None = None

    def watch(self) -> None:
        # Whom a shell started in the background without job control doesn't hear of Ctrl-C.
        self.ignored = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_IGN]
        self.watched = [number for number in _SIGNALS if number not in self.ignored]
        self.listen()

    def listen(self) -> None:
        """Has signals come here, also where others, such as PySpark, said meanwhile what they do."""
        if self.number is not None:
            return
        for number in self.watched:
            signal.signal(number, self.handle)
        for number in self.ignored:
            signal.signal(number, signal.SIG_IGN)

    def handle(self, number: int, _: FrameType | None = None) -> None:
        if self.instead is not None:
            self.instead()
            return
        if self.is_deferred:
            if self.pending is not None:
                self._let_the_next_end_it()
            self.pending = number
            return
        self.number, self.pending = number, None
        self._let_the_next_end_it()
        # What fails from now on fails because of it.
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        threading.excepthook = lambda _: None
        sys.unraisablehook = lambda _: None
        signal.signal(signal.SIGALRM, self._try_again)
        for end in reversed(self.first):
            # This thread may be waiting for an answer of what is to be ended.
            thread = threading.Thread(target=end, daemon=True)
            thread.start()
            thread.join(_END_S)
        self._raise()

    def _let_the_next_end_it(self) -> None:
        for number in self.watched:
            signal.signal(number, signal.SIG_DFL)

    def _raise(self) -> None:
        told = _Told(128 + (self.number or 0))
        self.told = weakref.ref(told, self._raise_again)
        try:
            raise told
        finally:
            # Its traceback has this frame, which would hold it for ever.
            del told

    def _raise_again(self, _: weakref.ref[_Told]) -> None:
        """Ends the command a moment later where nobody holds what was raised any more, and it didn't come to the end.

        A signal may come as an object is deleted, as a generator is closed for nobody needs it, as a hash is asked for
        by code in C that takes any error as "not there" (msgspec, of the type that it converts to), or while DuckDB
        works, which raises an error of its own.
        """
        if not self.is_over:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)

    def _try_again(self, _: int, __: FrameType | None) -> None:
        """Raises it again, but not into what is being left in order, or can't be left half done."""
        if self.is_over:
            return
        if self.is_deferred or (sys.exc_info()[1] is not None and self.put_off < _MOST_PUT_OFF):
            self.put_off += not self.is_deferred
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
            return
        self._raise()

    def end(self) -> None:
        """Has nothing be raised any more."""
        self.is_over = True
        if self.number is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            # Python gives signals their default back at its end, which is to die of this one.
            signal.signal(signal.SIGALRM, signal.SIG_IGN)


_stopping = _Stopping()


def run(command: Callable[[], object]) -> None:
    """Runs a command that ends quietly when this process is told to stop. To be called by the main thread."""
    _stopping.watch()
    try:
        command()
    except BaseException:
        _stopping.end()
        if _stopping.number is None:
            raise
    _stopping.end()
    if _stopping.number is not None:
        sys.exit(128 + _stopping.number)


def was_stopped() -> bool:
    """Returns whether this process was told to stop, so that what is left is to be left alone."""
    return _stopping.number is not None


def call_instead(action: Callable[[], None]) -> None:
    """Says what signals do from now on instead of ending the command, for a server. To be called by the main thread."""
    _stopping.instead = action
    if _stopping.watched or _stopping.ignored:
        _stopping.listen()
    else:
        _stopping.watch()


def take_back() -> None:
    """Has signals come here again, where a library said meanwhile what they do."""
    if threading.current_thread() is threading.main_thread():
        _stopping.listen()


def first_end(end: Callable[[], None]) -> None:
    """Says what is ended, by a thread of its own, before the contexts of a command that was told to stop are left."""
    _stopping.first.append(end)


def temporary_directory(prefix: str, inside: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """Makes a temporary directory, which no signal leaves behind that comes between its making and knowing of it.

    Args:
        inside: where; by default where all that is temporary is.
    """
    with deferred():
        return tempfile.TemporaryDirectory(prefix=prefix, dir=inside)


@contextmanager
def deferred() -> Iterator[None]:
    """Lets a signal wait until the end of what can't be left half done, or would not be quiet."""
    if _stopping.is_deferred or not _stopping.watched or threading.current_thread() is not threading.main_thread():
        yield
        return
    _stopping.is_deferred = True
    try:
        yield
    finally:
        _stopping.is_deferred = False
        _stopping.listen()
        number, _stopping.pending = _stopping.pending, None
        if number is not None:
            # What failed may have failed because of it: other processes of the command heard of it, too.
            _stopping.handle(number)


def result_of(future: Future[R], interrupt: Callable[[], object] | None = None) -> R:
    """Returns what a future gives, or raises its error; a signal ends the wait, which has no effect on others.

    A signal may come just before its thread waits for a lock, which tells it of the signal once it has the lock. And
    what it raises may leave a lock of the future's held, for which the thread that sets its result waits for ever.

    Args:
        interrupt: ends what is waited for, if it is to have ended before anything else does; it is called until then.
    """
    with deferred():
        try:
            while not wait((future,), _LOOK_S).done:
                if _stopping.pending is not None:
                    if interrupt is None:
                        break
                    interrupt()
        except BaseException:
            # Where `run` runs no command a signal raises here.
            while interrupt is not None and not wait((future,), _LOOK_S).done:
                interrupt()
            raise
    return future.result()


def as_completed(futures: Iterable[Future[R]]) -> Iterator[Future[R]]:
    """Yields futures as each is done; a signal ends the wait, as that of `result_of`."""
    left: set[Future[R]] = set(futures)
    while left:
        done: set[Future[R]] = set()
        with deferred():
            while not done:
                done, left = wait(left, _LOOK_S, FIRST_COMPLETED)
                if _stopping.pending is not None:
                    break
        yield from done
