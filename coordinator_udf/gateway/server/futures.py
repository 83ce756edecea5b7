"""Answers that are made of other answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from coordinator_udf.gateway.server.interfaces import MakeBody


def then(
    inner: asyncio.Future[MakeBody], finish: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> asyncio.Future[MakeBody]:
    """Returns a future of what `finish` makes of a body; cancelling it cancels the inner one."""
    outer: asyncio.Future[MakeBody] = asyncio.get_running_loop().create_future()

    def pass_on(done: asyncio.Future[MakeBody]) -> None:
        if outer.done():
            return
        if done.cancelled():
            outer.cancel()
        elif (error := done.exception()) is not None:
            outer.set_exception(error)
        else:
            make_body = done.result()
            outer.set_result(lambda: finish(make_body()))

    if inner.done():
        pass_on(inner)
        return outer
    inner.add_done_callback(pass_on)
    outer.add_done_callback(lambda done: inner.cancel() if done.cancelled() else None)
    return outer


class Unanswered(asyncio.Future[MakeBody]):
    """An answer to come. That it is given up is told at once: a callback takes the loop another round for each."""

    def __init__(self, on_cancel: Callable[[], None]) -> None:
        super().__init__()
        self._on_cancel = on_cancel

    def cancel(self, msg: Any | None = None) -> bool:
        """Gives it up; returns whether it was still to come."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self._on_cancel()
        return is_cancelled
