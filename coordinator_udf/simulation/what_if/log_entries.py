"""Reads a broker's request log, or what this project's coordinator wrote, for its members' behaviour."""

from __future__ import annotations

from pathlib import Path

from coordinator_udf.protocol.errors import BadRequest
from coordinator_udf.replay.inputs.broker_log.line import MARK, Entry, parse_line
from coordinator_udf.replay.inputs.cut_lines import whole_lines
from coordinator_udf.replay.inputs.text_lines import Line, read_lines
from coordinator_udf.replay.inputs.wrapped import unwrap
from coordinator_udf.simulation.what_if.own_tables import is_own, read_own
from coordinator_udf.user_errors import InputError


def read_entries(path: Path) -> list[Entry]:
    """Returns the requests of a log, or of a coordinator's folder of tables; other lines are passed over.

    Raises:
        InputError: the file can't be read, or has no line of Kafka's request log that can be read.
    """
    if is_own(path):
        return read_own(path)
    entries: list[Entry] = []
    broken: str | None = None
    for line in whole_lines(read_lines(path)):
        if not isinstance(line, Line) or MARK not in line.text:
            continue
        try:
            entries.append(parse_line(line.number, unwrap(line.text)))
        except BadRequest as error:
            broken = f"line {line.number}: {error}"
    if not entries:
        raise InputError(
            f"{path} has no line of Kafka's request log{f' that can be read ({broken})' if broken else ''}"
        )
    return entries
