"""Tells the kinds of historical logs apart by their content, and reads each with its reader."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from coordinator_udf.replay.inputs.broker_log.line import MARK
from coordinator_udf.replay.inputs.broker_log.reader import read_kafka_log
from coordinator_udf.replay.inputs.documents import single_lines
from coordinator_udf.replay.inputs.info_log.lines import is_coordinator_line
from coordinator_udf.replay.inputs.look import TRACE_LINES, is_trace_line
from coordinator_udf.replay.inputs.offsets_dump.lines import is_record_line
from coordinator_udf.replay.inputs.text_lines import read_lines
from coordinator_udf.replay.inputs.trace import read_trace
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import Rejection, ReplaySource
from coordinator_udf.user_errors import InputError

_SQLITE_MAGIC = b"SQLite format 3\x00"


class Format(StrEnum):
    """The kinds of historical logs."""

    AUTO = "auto"
    KAFKA = "kafka"
    TRACE = "trace"
    TABLE = "table"
    LOG = "log"
    INFO = "info"
    OFFSETS = "offsets"


def detect_format(path: Path) -> Format:
    """Returns the kind of one input, by what is in it.

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
    for number, line in enumerate(single_lines(read_lines(path))):
        if isinstance(line, Rejection):
            continue
        if MARK in line.text:
            return Format.KAFKA
        if is_coordinator_line(line.text):
            return Format.INFO
        if is_record_line(line.text):
            return Format.OFFSETS
        if number < TRACE_LINES and is_trace_line(line.text):
            return Format.TRACE
    raise InputError(
        f"{path} is of no known kind: it has no line of Kafka's request log ({MARK}...), none of a group coordinator "
        "in a broker's own log ([GroupCoordinator ...), no record of __consumer_offsets as its tools print it, and "
        "none of its first lines is one of a trace (a JSON object with a type); say --format if it is one all the same"
    )


def read_source(
    path: Path | Sequence[Path], source: str, options: ReplayOptions, form: Format = Format.AUTO
) -> ReplaySource:
    """Reads one recording of requests: a file, or the parts of a broker's request log in their order.

    Raises:
        InputError: it can't be opened, or it is of no known kind.
    """
    paths = [path] if isinstance(path, Path) else list(path)
    kind = detect_format(paths[0]) if form is Format.AUTO else form
    if kind is Format.KAFKA:
        return read_kafka_log(paths, source, options)
    if kind is Format.TRACE:
        return read_trace(paths[0], source, options)
    raise InputError(f"{paths[0]} is a {kind.value}, which is not read as requests line by line")
