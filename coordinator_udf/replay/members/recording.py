"""Reads a recording of members: JSON lines, one input or output of a member each, plain or gzip."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from coordinator_udf.user_errors import InputError

#: A line of a recording.
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MemberRecording:
    """One member's inputs, from ``start`` on, and outputs, each with its line's number in the file."""

    name: str
    protocol: str
    inputs: list[tuple[int, Line]]
    outputs: list[tuple[int, Line]]


@dataclass(frozen=True, slots=True)
class RecordedMembers:
    """A recording of one or several members. ``backoff_factor`` stands for what Kafka draws for each backoff.

    ``lines`` are all of them in the order in which things happened, numbered from 1; the first is the ``config``.
    """

    path: Path
    family: str
    backoff_factor: float
    members: list[MemberRecording]
    lines: list[tuple[int, Line]]

    @property
    def is_closed_loop(self) -> bool:
        """Whether Kafka's coordinator answered, and not a script."""
        return "coordinator" in self.lines[0][1]


def read_recording(path: Path) -> RecordedMembers:
    """Reads a recording.

    Raises:
        InputError: the file can't be read, or a line isn't what is expected; the message names both.
    """
    number = 0
    config: Line | None = None
    members: dict[str, MemberRecording] = {}
    lines: list[tuple[int, Line]] = []
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        for number, raw in enumerate(text.splitlines(), 1):
            line = msgspec.json.decode(raw, type=dict[str, Any])
            lines.append((number, line))
            if line["type"] == "config":
                config = line
            elif line["type"] == "start":
                protocol = line["config"].get("group.protocol", "classic")
                members[line["m"]] = MemberRecording(line["m"], protocol, [(number, line)], [])
            elif line["dir"] == "in" and "m" in line:
                members[line["m"]].inputs.append((number, line))
            elif line["dir"] == "out":
                members[line["m"]].outputs.append((number, line))
        if config is None:
            raise InputError(f"{path}: no line of type config, so this is no recording of members")
        return RecordedMembers(path, config["family"], float(config["backoffFactor"]), list(members.values()), lines)
    except (OSError, EOFError) as error:
        raise InputError(f"{path}: can't be read: {error}") from error
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}, line {number}: no line of a recording of members: {error!r}") from error
