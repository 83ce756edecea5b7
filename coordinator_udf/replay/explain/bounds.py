"""How far the search for an order may go: settings with measured defaults."""

from __future__ import annotations

from typing import NamedTuple


class Bounds(NamedTuple):
    """Bounds of the search.

    Attributes:
        handover_ms: how long the coordinator may take to get to a request that then waits for others.
        late_ms: how late a timer may fire, and news of topics be heard of.
        back: how many steps before a difference the windows begin that are searched, one after the other.
        ahead: how many steps behind a difference an order has to explain before it is taken.
        changes: how many steps at most may be other than usual in one window.
        tries: how many steps may be tried for one difference.
        tries_a_step: how many for a log, by the number of its steps; this keeps the cost linear.
        candidates: how many requests are looked at for what came next.
        keep_every: of how many steps one leaves a snapshot.
    """

    handover_ms: int = 100
    late_ms: int = 250
    back: tuple[int, ...] = (4, 16, 48)
    ahead: int = 16
    changes: int = 4
    tries: int = 6_000
    tries_a_step: int = 40
    candidates: int = 6
    keep_every: int = 8
