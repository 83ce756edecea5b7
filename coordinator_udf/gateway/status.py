"""What a gateway tells of itself, to the status line and to its metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """What a gateway is doing, and did since its start.

    Attributes:
        connections: open now.
        unanswered: requests on their way to the coordinator and back.
        appends: group commits to the log.
        rows: rows appended.
        timed_out: requests that the coordinator left unanswered for too long.
        shed: requests that were dropped before the log, as nobody waited for them any more.
        withdrawn: members that were made to leave, as their clients had gone before they learnt their ids.
        closed: closed connections by the first words of the reason.
        authentications: what came of authentications, by the names of Kafka's metrics.
    """

    connections: int
    unanswered: int
    appends: int
    rows: int
    timed_out: int
    shed: int
    withdrawn: int
    closed: dict[str, int]
    authentications: dict[str, int]
