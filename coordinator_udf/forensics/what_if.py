"""What other settings would have done, as `muster what-if --json` wrote it, for the report's page."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coordinator_udf.user_errors import InputError


class Figures(msgspec.Struct, frozen=True):
    """What happened to a group in a span of time."""

    rebalances: int
    unowned_s: float
    moves: float
    expulsions: int


class Calibration(msgspec.Struct, frozen=True):
    """How many rebalances the log has, how many the simulated group has, and how many are the same."""

    recorded: int
    simulated: int
    matched: int


_Range = tuple[float, float]


class Ranges(msgspec.Struct, frozen=True):
    """The least and the most of each measure."""

    rebalances: _Range
    unowned_s: _Range
    moves: _Range
    expulsions: _Range


_TITLES = {
    "rebalances": "rebalances",
    "unowned_s": "partition-seconds without an owner",
    "moves": "partitions that moved",
    "expulsions": "expulsions",
}


class Spread(msgspec.Struct, frozen=True):
    """Between what the figures may lie by chance."""

    base: Ranges
    changed: Ranges


class RefusedMember(msgspec.Struct, frozen=True):
    """A process that was refused for good, with what its polls threw, and in what part of the worlds (0 to 1)."""

    error: str
    share: float


class RefusedMembers(msgspec.Struct, frozen=True):
    """The processes that were refused for good, by their names."""

    base: dict[str, RefusedMember] = {}
    changed: dict[str, RefusedMember] = {}


class WhatIfResult(msgspec.Struct, frozen=True):
    """One group, under the settings as they were and as changed.

    Attributes:
        unknown: what the log doesn't tell, in words.
        nothing_counted: why nothing of it is counted, in words, if nothing is.
        without_effect: what of the change makes no difference to it, in words.
        base_on_other_days: what `base` is on days on which chance is drawn, if `changed` is of such days.
        options: what was asked for, as the command's options.
    """

    calibration: Calibration
    base: Figures
    changed: Figures
    spread: Spread
    unknown: tuple[str, ...]
    refused_members: RefusedMembers = RefusedMembers()
    nothing_counted: str | None = None
    without_effect: tuple[str, ...] = ()
    base_on_other_days: Figures | None = None
    options: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, str, str]]:
        """Returns what is counted, before and after, each with what chance might make of it."""
        return [
            (title, _cell(self.base, self.spread.base, name), _cell(self.changed, self.spread.changed, name))
            for name, title in _TITLES.items()
        ]

    def expected_before(self) -> str:
        """Returns what is counted before the change on days on which chance is drawn; nothing if that isn't known."""
        of = self.base_on_other_days
        shown = [] if of is None else [f"{_figure(getattr(of, name), name)} {title}" for name, title in _TITLES.items()]
        return ", ".join(shown)


def _figure(value: float, name: str) -> str:
    return f"{value:.{1 if name == 'unowned_s' or value % 1 else 0}f}"


def _cell(figures: Figures, ranges: Ranges, name: str) -> str:
    shown, least, most = (_figure(value, name) for value in (getattr(figures, name), *getattr(ranges, name)))
    return shown if least == most else f"{shown} ({least} to {most})"


class _Group(msgspec.Struct, frozen=True):
    calibration: Calibration
    spread: Spread
    unknown: tuple[str, ...]
    # Absent in files of before.
    refused_members: RefusedMembers = RefusedMembers()
    nothing_counted: str | None = None
    without_effect: tuple[str, ...] = ()
    base_on_other_days: Figures | None = None


class _File(msgspec.Struct, frozen=True):
    base: dict[str, msgspec.Raw]
    changed: dict[str, msgspec.Raw]
    groups: dict[str, _Group]
    options: tuple[str, ...] = ()


def read_what_if(path: Path) -> dict[str, WhatIfResult]:
    """Reads a file of `muster what-if --json`: by group.

    Raises:
        InputError: it can't be read, or is no such file.
    """
    try:
        read = msgspec.json.decode(path.read_bytes(), type=_File)
        return {
            group_id: WhatIfResult(
                group.calibration,
                msgspec.json.decode(read.base[group_id], type=Figures),
                msgspec.json.decode(read.changed[group_id], type=Figures),
                group.spread,
                group.unknown,
                group.refused_members,
                group.nothing_counted,
                group.without_effect,
                group.base_on_other_days,
                read.options,
            )
            for group_id, group in read.groups.items()
        }
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from error
    except (msgspec.DecodeError, KeyError) as error:
        raise InputError(f"{path} is no file of what_if --json: {error}") from error
