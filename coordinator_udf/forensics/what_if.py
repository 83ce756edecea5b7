"""What other settings would have done, as `jobs/what_if.py --json` wrote it, for the report's page."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coordinator_udf.user_errors import InputError


class Figures(msgspec.Struct, frozen=True):
    """What happened to a group in a span of time."""

    rebalances: int
    unowned_s: float
    moves: int
    expulsions: int


class Calibration(msgspec.Struct, frozen=True):
    """How many rebalances the log has, how many the simulated group has, and how many are the same."""

    recorded: int
    simulated: int
    matched: int


class WhatIfResult(msgspec.Struct, frozen=True):
    """One group, under the settings as they were and as changed."""

    calibration: Calibration
    base: Figures
    changed: Figures

    def rows(self) -> list[tuple[str, str, str]]:
        """Returns what is counted, before and after."""
        return [
            ("rebalances", str(self.base.rebalances), str(self.changed.rebalances)),
            ("partition-seconds without an owner", f"{self.base.unowned_s:.1f}", f"{self.changed.unowned_s:.1f}"),
            ("partitions that moved", str(self.base.moves), str(self.changed.moves)),
            ("expulsions", str(self.base.expulsions), str(self.changed.expulsions)),
        ]


class _Group(msgspec.Struct, frozen=True):
    calibration: Calibration


class _File(msgspec.Struct, frozen=True):
    base: dict[str, msgspec.Raw]
    changed: dict[str, msgspec.Raw]
    groups: dict[str, _Group]


def read_what_if(path: Path) -> dict[str, WhatIfResult]:
    """Reads a file of `jobs/what_if.py --json`: by group.

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
            )
            for group_id, group in read.groups.items()
        }
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from error
    except (msgspec.DecodeError, KeyError) as error:
        raise InputError(f"{path} is no file of what_if --json: {error}") from error
