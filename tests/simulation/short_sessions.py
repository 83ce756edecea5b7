"""Settings of a coordinator for worlds of a minute or two."""

from __future__ import annotations

from typing import Final

#: Sessions of KIP-848 as short as those of the classic members of these tests.
SHORT_SESSIONS: Final = {
    "group.consumer.session.timeout.ms": 10_000,
    "group.consumer.min.session.timeout.ms": 10_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
}
