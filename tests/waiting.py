"""The one way in which tests wait for what another process or thread brings about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: How long anything is waited for: it comes within seconds, or on a busy machine within a minute; else it never does.
PATIENCE_S = 300.0


def wait(
    condition: Callable[[], Any],
    what: str,
    story: Callable[[], str] = lambda: "",
    timeout_s: float = PATIENCE_S,
    every_s: float = 0.05,
) -> None:
    """Until the condition holds; fails with the story when it doesn't in time.

    Args:
        condition: looked at again and again; what it raises ends the wait.
        what: is waited for, in words.
        story: what is known of it, told by the failure.
        timeout_s: for how long.
        every_s: how often it is looked at; more rarely where a look costs others time.
    """
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited {timeout_s:g} s until {what}\n{story()}"
        time.sleep(every_s)
