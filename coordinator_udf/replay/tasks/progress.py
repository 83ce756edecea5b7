"""How far a long work is: a bar on a terminal, else a line every few seconds; with the rate and the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

#: How often a line is said, in seconds: often enough for a person to see that it goes on.
_EVERY_S: Final = 5.0


class Progress:
    """The progress of one work."""

    def __init__(self, what: str, total: int, say: Callable[[str], None]) -> None:
        """Begins with nothing done.

        Args:
            what: it does, with which units.
            total: how many units there are.
            say: gets the lines where there is no terminal.
        """
        self._what, self._total, self._say = what, total, say
        self._done = 0
        self._began_s = self._said_s = 0.0
        self._stack = ExitStack()
        self._draw: Callable[[int], None] | None = None

    def __enter__(self) -> Self:
        self._began_s = self._said_s = time.monotonic()
        if sys.stderr.isatty():
            self._draw = self._bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._draw is None and kind is None:
            self._say(self.line())

    def advance(self, units: int) -> None:
        """Says that so many more are done."""
        self._done += units
        if self._draw is not None:
            self._draw(units)
        elif time.monotonic() - self._said_s >= _EVERY_S:
            self._said_s = time.monotonic()
            self._say(self.line())

    def line(self) -> str:
        """Returns how far it is."""
        passed_s = max(time.monotonic() - self._began_s, 1e-3)
        rate = self._done / passed_s
        line = f"{self._what}: {self._done:,} of {self._total:,}, {rate:,.0f}/s"
        if not 0 < self._done < self._total:
            return f"{line}, {passed_s:.0f} s"
        left_s = round((self._total - self._done) / rate)
        return f"{line}, {left_s // 60}:{left_s % 60:02d} left"

    def _bar(self) -> Callable[[int], None]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        bar = self._stack.enter_context(RichProgress(*columns, console=Console(stderr=True)))
        task = bar.add_task(self._what, total=self._total, rate="")

        def draw(units: int) -> None:
            rate = self._done / max(time.monotonic() - self._began_s, 1e-3)
            bar.update(task, advance=units, rate=f"{rate:,.0f}/s")

        return draw
