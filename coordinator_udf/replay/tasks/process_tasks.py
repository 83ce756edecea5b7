"""Units of work in processes of this machine, where starting Spark would take longer than the work."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from coordinator_udf.stopping import as_completed, deferred, result_of

T = TypeVar("T")
R = TypeVar("R")


def in_processes(
    units: Sequence[T], work: Callable[[T], R], say: Callable[[str], None], done: Callable[[T], None] | None = None
) -> list[R]:
    """Runs each unit, several at once, and gives the results in the units' order.

    Args:
        work: a function of a module; it and the units are pickled.
        say: gets a line as each unit is done, if there are several.
        done: gets each unit as it is done, in place of the line.
    """
    workers = min(len(units), workers_here())
    if workers <= 1:
        results = []
        for unit in units:
            results.append(work(unit))
            if done is not None:
                done(unit)
        return results
    with process_pool(workers) as pool:
        futures = {submit(pool, work, unit): unit for unit in units}
        for number, future in enumerate(as_completed(futures), 1):
            if done is None:
                say(f"{number} of {len(units)} logs read")
            else:
                done(futures[future])
        return [future.result() for future in futures]


def mapped_in_processes(work: Callable[[T], R], units: Iterable[T]) -> Iterator[R]:
    """Gives the results of many small units in their order, while a few of those that follow are worked on."""
    workers = workers_here()
    with process_pool(workers) as pool:
        pending: deque[Future[R]] = deque()
        for unit in units:
            pending.append(submit(pool, work, unit))
            if len(pending) > 2 * workers:
                yield result_of(pending.popleft())
        while pending:
            yield result_of(pending.popleft())


def workers_here() -> int:
    """Returns how many processes this machine runs at once."""
    return len(os.sched_getaffinity(0))


@contextmanager
def process_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Gives processes that end with what the context was begun for, whichever way it ends."""
    # Forked ones would inherit the threads' locks, but not the threads.
    context = multiprocessing.get_context("forkserver")
    callers = set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, context, initializer=_end_at_signals) as pool:
        try:
            yield pool
        except BaseException:
            for process in set(multiprocessing.active_children()) - callers:
                process.terminate()
            _let_go_of_waiting_work(pool)
            raise


def _let_go_of_waiting_work(pool: ProcessPoolExecutor) -> None:
    """Lets the thread end that writes work into a pipe which no process reads any more.

    Else who joins it would wait for ever: https://github.com/python/cpython/issues/94777. Python 3.11.5 has it mended,
    and closes the pipe itself, at the same time; Debian 12 has 3.11.2.
    """
    waiting = getattr(pool, "_call_queue", None)
    if waiting is not None and sys.version_info < (3, 11, 5):
        with suppress(OSError):
            waiting._reader.close()  # noqa: SLF001 - as later Pythons do it


def submit(pool: ProcessPoolExecutor, work: Callable[..., R], *arguments: Any) -> Future[R]:
    """Gives a pool's processes something to do; a signal leaves no process that nobody knows of, or that complains."""
    # It may start a process, which nobody would know of, to end it, were this left in the middle.
    with deferred():
        # A Python that begins tells of Ctrl-C with a traceback. What is started inherits which signals are blocked.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return pool.submit(work, *arguments)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_at_signals() -> None:
    """Lets a signal to all processes of a command end this one without a word."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    # What came while this process began ends it now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
