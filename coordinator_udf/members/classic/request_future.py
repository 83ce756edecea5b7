"""The result of a request that comes later (RequestFuture). What waits for it runs in the order it was added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from coordinator_udf.members.classic.flow import Flow
from coordinator_udf.members.exceptions import ClientException, exception_for, illegal_state
from coordinator_udf.protocol.errors import Errors

T = TypeVar("T")
U = TypeVar("U")

OnSuccess = Callable[[T], Flow[None]]
OnFailure = Callable[[ClientException], Flow[None]]


class RequestFuture(Generic[T]):
    """A value or an exception, once it is there."""

    __slots__ = ("_done", "_exception", "_listeners", "_value")

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._exception: ClientException | None = None
        self._listeners: list[tuple[OnSuccess[T], OnFailure]] = []

    @classmethod
    def failure(cls, exception: ClientException) -> RequestFuture[T]:
        """Returns a future that has failed."""
        future: RequestFuture[T] = cls()
        future._done, future._exception = True, exception
        return future

    @classmethod
    def success(cls, value: T) -> RequestFuture[T]:
        """Returns a future that has its value."""
        future: RequestFuture[T] = cls()
        future._done, future._value = True, value
        return future

    @property
    def is_done(self) -> bool:
        """Whether there is a value or an exception."""
        return self._done

    @property
    def exception(self) -> ClientException | None:
        """Why it failed, if it did."""
        return self._exception

    @property
    def failed_retriably(self) -> bool:
        """Whether it failed with something that another attempt may not meet."""
        return self._exception is not None and self._exception.retriable

    @property
    def value(self) -> T:
        """The value; only of a future that has one."""
        if not self._done or self._exception is not None:
            raise illegal_state("Attempt to retrieve value from future which hasn't successfully completed")
        return cast(T, self._value)

    def should_block(self) -> bool:
        """Tells whether a poll for this future should wait."""
        return not self._done

    def complete(self, value: T) -> Flow[None]:
        """Gives the value and runs what waits for it.

        Raises:
            ClientException: it is done already (IllegalStateException).
        """
        self._finish()
        self._value = value
        yield from self._fire()

    def fail(self, exception: ClientException) -> Flow[None]:
        """Gives the exception and runs what waits for it.

        Raises:
            ClientException: it is done already (IllegalStateException).
        """
        self._finish()
        self._exception = exception
        yield from self._fire()

    def fail_with(self, error: Errors | int) -> Flow[None]:
        """Fails with the exception of an error code."""
        yield from self.fail(exception_for(int(error)))

    def listen(self, on_success: OnSuccess[T], on_failure: OnFailure) -> Flow[None]:
        """Has one of two functions run with the result, at once if it is there."""
        self._listeners.append((on_success, on_failure))
        if self._done:
            yield from self._fire()

    def chain(self, other: RequestFuture[T]) -> Flow[None]:
        """Gives the result to another future too."""
        yield from self.listen(other.complete, other.fail)

    def _finish(self) -> None:
        if self._done:
            raise illegal_state("Invalid attempt to complete a request future which is already complete")
        self._done = True

    def _fire(self) -> Flow[None]:
        while self._listeners:
            on_success, on_failure = self._listeners.pop(0)
            if self._exception is None:
                yield from on_success(cast(T, self._value))
            else:
                yield from on_failure(self._exception)
