"""What members or their coordinator did and shouldn't have, as it is noted while a world goes on."""

from __future__ import annotations

from typing import NamedTuple


class CutShort(NamedTuple):
    """A membership that ended as if a session was over that wasn't. Times in milliseconds.

    Attributes:
        heard_ms: when the coordinator had last heard from the member.
    """

    ts_ms: int
    group_id: str
    process: str
    heard_ms: int
    timeout_ms: int


class NumberTaken(NamedTuple):
    """A request that the coordinator took though its generation or epoch wasn't its member's; ``told``: that one."""

    ts_ms: int
    group_id: str
    process: str
    api: str
    number: int
    told: int


class WronglyRefused(NamedTuple):
    """A request that the coordinator refused with an error that isn't its member's."""

    ts_ms: int
    group_id: str
    process: str
    api: str
    error: str


class SentWithoutCause(NamedTuple):
    """A request that its member had no cause to send; ``how``: more often than what."""

    ts_ms: int
    group_id: str
    process: str
    api: str
    how: str


class SentTooSeldom(NamedTuple):
    """A request that its member hasn't sent for so many milliseconds, and was to send within less."""

    ts_ms: int
    group_id: str
    process: str
    api: str
    pause_ms: int
    within_ms: int


class FatalError(NamedTuple):
    """An answer that ends a member, and comes to its process at a time."""

    ts_ms: int
    group_id: str
    process: str
    error: str


class GoesOn(NamedTuple):
    """A request of a member that was told a fatal error before, of which its application wasn't told."""

    ts_ms: int
    group_id: str
    process: str
    api: str
    error: str
