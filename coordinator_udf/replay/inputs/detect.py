"""Tells the kinds of historical logs apart by their content, and reads each with its reader."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from coordinator_udf.replay.inputs.broker_log.line import MARK
from coordinator_udf.replay.inputs.broker_log.reader import read_kafka_log
from coordinator_udf.replay.inputs.text_lines import read_lines
from coordinator_udf.replay.inputs.trace import read_trace
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import Rejection, ReplaySource
from coordinator_udf.user_errors import InputError

_SQLITE_MAGIC = b"SQLite format 3\x00"
#: How many lines are looked at before an input counts as unknown.
_LOOK_AT_LINES = 200


class Format(StrEnum):
    """The kinds of historical logs."""

    AUTO = "auto"
    KAFKA = "kafka"
    TRACE = "trace"
    TABLE = "table"
    LOG = "log"


def detect_format(path: Path) -> Format:
    """The kind of one input, by what is in it.

    Raises:
        InputError: there is no such file, or it is of no known kind.
    """
    if path.is_dir():
        if (path / "_delta_log").is_dir():
            return Format.TABLE
        raise InputError(f"{path} is a directory but no Delta table (it has no _delta_log); name the files in it")
    if not path.exists():
        raise InputError(f"there is no input {path}")
    with path.open("rb") as file:
        magic = file.read(len(_SQLITE_MAGIC))
    if magic == _SQLITE_MAGIC:
        return Format.LOG
    if not magic:
        raise InputError(f"{path} is empty, expected a request log or a trace")
    for number, line in enumerate(read_lines(path)):
        if isinstance(line, Rejection):
            continue
        if MARK in line.text:
            return Format.KAFKA
        if _is_trace_line(line.text):
            return Format.TRACE
        if number >= _LOOK_AT_LINES:
            break
    raise InputError(
        f"{path} is of no known kind: none of its first lines is a line of Kafka's request log ({MARK}...) "
        "or of a trace (a JSON object with a type); say --format if it is one all the same"
    )


def read_source(path: Path, source: str, options: ReplayOptions, form: Format = Format.AUTO) -> ReplaySource:
    """Reads one file of recorded requests.

    Raises:
        InputError: it can't be opened, or it is of no known kind.
    """
    kind = detect_format(path) if form is Format.AUTO else form
    if kind is Format.TRACE:
        return read_trace(path, source, options)
    if kind is Format.KAFKA:
        return read_kafka_log(path, source, options)
    raise InputError(f"{path} is a {kind.value}, which is read as a table and not line by line")


def _is_trace_line(text: str) -> bool:
    try:
        line = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return isinstance(line, dict) and isinstance(line.get("type"), str)
