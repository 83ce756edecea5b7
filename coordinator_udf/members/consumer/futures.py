"""A result that comes later, with Java's order of what waits for it (java.util.concurrent.CompletableFuture).

Java runs the dependents of a future from the last that was added to the first, and Kafka's client depends on that: a
commit that is tried again marks itself as in flight before the failed attempt unmarks it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from coordinator_udf.members.exceptions import ClientException

T = TypeVar("T")
U = TypeVar("U")

Action = Callable[[T | None, ClientException | None], None]

#: Runs one dependent and returns its future, if others wait for that in turn.
_Dependent = Callable[[], "CompletableFuture[Any] | None"]


class CompletableFuture(Generic[T]):
    """A value or an exception that is there already, or will be."""

    __slots__ = ("_dependents", "_done", "_error", "_value")

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: ClientException | None = None
        self._dependents: list[_Dependent] = []

    @classmethod
    def completed(cls, value: T) -> CompletableFuture[T]:
        """Returns a future that has its value."""
        future: CompletableFuture[T] = cls()
        future._set(value, None)
        return future

    def is_done(self) -> bool:
        """Tells whether the value or the exception is there."""
        return self._done

    def result(self) -> T:
        """Returns the value.

        Raises:
            ClientException: the future was completed with it.
            RuntimeError: the future isn't done.
        """
        if not self._done:
            raise RuntimeError("the future isn't done")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def complete(self, value: T) -> bool:
        """Gives the value, unless there is one; runs what waits. Returns whether it was taken."""
        return self._finish(value, None)

    def complete_exceptionally(self, error: ClientException) -> bool:
        """Gives the exception, unless the future is done; runs what waits. Returns whether it was taken."""
        return self._finish(None, error)

    def when_complete(self, action: Action[T]) -> CompletableFuture[T]:
        """Runs ``action`` with the value and the exception, now or later. What it throws is in the future returned."""
        then: CompletableFuture[T] = CompletableFuture()
        if self._done:
            self._run(action, then)
        else:

            def fire() -> CompletableFuture[Any] | None:
                self._run(action, then)
                return then if then._dependents else None

            self._dependents.append(fire)
        return then

    def then_compose(self, step: Callable[[T], CompletableFuture[U]]) -> CompletableFuture[U]:
        """Returns a future of what ``step`` makes of the value, or of the exception."""
        then: CompletableFuture[U] = CompletableFuture()
        if self._done:
            self._compose(step, then)
        else:

            def fire() -> CompletableFuture[Any] | None:
                self._compose(step, then)
                return then if then._done and then._dependents else None

            self._dependents.append(fire)
        return then

    def _finish(self, value: T | None, error: ClientException | None) -> bool:
        if self._done:
            return False
        self._set(value, error)
        self._run_dependents()
        return True

    def _set(self, value: T | None, error: ClientException | None) -> None:
        self._done, self._value, self._error = True, value, error

    def _run(self, action: Action[T], then: CompletableFuture[T]) -> None:
        error = self._error
        try:
            action(self._value, error)
        except ClientException as thrown:
            error = error or thrown
        then._set(None if error else self._value, error)

    def _compose(self, step: Callable[[T], CompletableFuture[U]], then: CompletableFuture[U]) -> None:
        if self._error is not None:
            then._set(None, self._error)
            return
        inner: CompletableFuture[U]
        try:
            inner = step(cast(T, self._value))
        except ClientException as thrown:
            then._set(None, thrown)
            return
        inner.relay_to(then)

    def relay_to(self, then: CompletableFuture[T]) -> None:
        """Completes another future with this one's result, before what was added earlier."""
        if self._done:
            then._set(self._value, self._error)
            return

        def fire() -> CompletableFuture[Any] | None:
            then._set(self._value, self._error)
            return then if then._dependents else None

        self._dependents.append(fire)

    def _run_dependents(self) -> None:
        """Runs the dependents, and theirs, in the order of CompletableFuture.postComplete."""
        at: CompletableFuture[Any] = self
        while True:
            if not at._dependents:
                if at is self or not self._dependents:
                    return
                at = self
            fire = at._dependents.pop()
            if at is not self and at._dependents:
                self._dependents.append(fire)
                continue
            at = fire() or self
