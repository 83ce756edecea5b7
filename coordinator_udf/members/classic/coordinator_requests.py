"""Requests to the coordinator: what all their answers have in common (CoordinatorResponseHandler)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from coordinator_udf.members.classic.answers import A, read_answer
from coordinator_udf.members.classic.context import Context
from coordinator_udf.members.classic.discovery import CoordinatorDiscovery
from coordinator_udf.members.classic.flow import Flow
from coordinator_udf.members.classic.request_future import RequestFuture
from coordinator_udf.members.classic.requests import RequestBuilder
from coordinator_udf.members.exceptions import ClientException, exception_for
from coordinator_udf.protocol.errors import Errors

T = TypeVar("T")


def coordinator_not_available() -> RequestFuture[Any]:
    """Returns a future that has failed, for the coordinator is unknown."""
    return RequestFuture.failure(exception_for(Errors.COORDINATOR_NOT_AVAILABLE))


class CoordinatorRequests:
    """Sends requests to the coordinator. A connection that is lost makes it unknown."""

    def __init__(self, context: Context, discovery: CoordinatorDiscovery) -> None:
        self._context = context
        self._discovery = discovery

    def send(
        self,
        builder: RequestBuilder,
        kind: type[A],
        handle: Callable[[A, RequestFuture[T]], Flow[None]],
        timeout_ms: int | None = None,
    ) -> Flow[RequestFuture[T]]:
        """Sends a request and returns what ``handle`` will make of its answer.

        What an answer's handling throws is the result, unless there is one already.
        """
        if self._discovery.coordinator is None:
            return coordinator_not_available()
        result: RequestFuture[T] = RequestFuture()

        def answered(body: Mapping[str, Any]) -> Flow[None]:
            try:
                yield from handle(read_answer(body, kind), result)
            except ClientException as error:
                if not result.is_done:
                    yield from result.fail(error)

        def failed(error: ClientException) -> Flow[None]:
            if error.class_name == "DisconnectException":
                self._discovery.mark_unknown(is_disconnected=True)
            yield from result.fail(error)

        answer = self._context.client.send(self._discovery.coordinator, builder, timeout_ms)
        yield from answer.listen(answered, failed)
        return result
