"""Tells the kinds of historical logs apart by their content, and reads each with its reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from coordinator_udf.replay.inputs.broker_log.line import MARK
from coordinator_udf.replay.inputs.broker_log.reader import read_kafka_log
from coordinator_udf.replay.inputs.documents import single_lines
from coordinator_udf.replay.inputs.found import DELTA_LOG
from coordinator_udf.replay.inputs.info_log.lines import is_coordinator_line, log_line_us
from coordinator_udf.replay.inputs.offsets_dump.lines import is_record_line
from coordinator_udf.replay.inputs.text_lines import broken_off, read_lines
from coordinator_udf.replay.inputs.trace import read_trace
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.recording import Rejection, ReplaySource
from coordinator_udf.user_errors import InputError

_SQLITE_MAGIC = b"SQLite format 3\x00"
#: Among how many lines the first of a trace is looked for: before it there may be what Java or a build tool prints.
_TRACE_LINES: Final = 200


class Format(StrEnum):
    """The kinds of historical logs."""

    AUTO = "auto"
    KAFKA = "kafka"
    TRACE = "trace"
    TABLE = "table"
    LOG = "log"
    INFO = "info"
    OFFSETS = "offsets"


#: What each is, and how it is told.
_WORDS: Final = {
    Format.KAFKA: f"a request log of Kafka's ({MARK}...)",
    Format.TRACE: "a trace (JSON objects with a type)",
    Format.TABLE: "a request log's Delta table",
    Format.LOG: "an embedded log of Muster's",
    Format.INFO: "a broker's own log ([GroupCoordinator ...)",
    Format.OFFSETS: "a dump of __consumer_offsets as Kafka's tools print it",
}


class EmptyInputError(InputError):
    """A file without a line, of which nothing is lost."""


def detect_format(path: Path) -> Format:
    """Returns the kind of one input, by what is in it.

    A log without a line of the coordinator is INFO, too: it may be a part of a broker's own log.

    Raises:
        InputError: there is no such file, it can't be read, or it is of no known kind.
    """
    magic = _beginning(path)
    if magic is None:
        return Format.TABLE
    if magic == _SQLITE_MAGIC:
        return Format.LOG
    if not magic:
        raise EmptyInputError(f"{path} is empty, expected a request log or a trace")
    is_log, has_lines, how_broken_off = False, False, None
    for number, line in enumerate(single_lines(read_lines(path))):
        if isinstance(line, Rejection):
            how = broken_off(line)
            has_lines, how_broken_off = has_lines or how is None, how or how_broken_off
            continue
        has_lines = True
        if MARK in line.text:
            return Format.KAFKA
        if is_coordinator_line(line.text):
            return Format.INFO
        if is_record_line(line.text):
            return Format.OFFSETS
        if number < _TRACE_LINES and _is_trace_line(line.text):
            return Format.TRACE
        is_log = is_log or log_line_us(line.text) is not None
    if is_log:
        return Format.INFO
    if how_broken_off is not None:
        told = how_broken_off.partition(";")[0]
        raise InputError(f"{path} is of no known kind as far as it can be read: {told}")
    if not has_lines:
        raise EmptyInputError(f"{path} holds no line that isn't blank, expected a request log or a trace")
    raise InputError(
        f"{path} is of no known kind: it has no line of Kafka's request log ({MARK}...), none of a group coordinator "
        "in a broker's own log ([GroupCoordinator ...), no record of __consumer_offsets as its tools print it, and "
        "none of its first lines is one of a trace (a JSON object with a type; --format trace looks at all)"
    )


def check_format(path: Path, form: Format) -> None:
    """Looks whether a file has anything of the kind that it is said to be.

    Raises:
        InputError: it has nothing; the message names what it looks like. Or there is no such file, or it can't be read.
    """
    if form is Format.AUTO or _holds(path, form):
        return
    found = detect_format(path)
    if found is not form:
        raise InputError(
            f"{path} has nothing of what --format {form} says, {_WORDS[form]}; it looks like {_WORDS[found]}: "
            f"--format {found}, or none"
        )


def _holds(path: Path, form: Format) -> bool:
    magic = _beginning(path)
    if magic is None:
        return form is Format.TABLE
    if magic == _SQLITE_MAGIC:
        return form is Format.LOG
    is_line = _IS_LINE_OF.get(form)
    if is_line is None:
        return False
    return any(not isinstance(line, Rejection) and is_line(line.text) for line in single_lines(read_lines(path)))


def _beginning(path: Path) -> bytes | None:
    """Returns the first bytes of a file; None of a Delta table."""
    try:
        if path.is_dir():
            if (path / DELTA_LOG).is_dir():
                return None
            raise InputError(f"{path} is a directory but no Delta table (it has no {DELTA_LOG}); name the files in it")
        with path.open("rb") as file:
            return file.read(len(_SQLITE_MAGIC))
    except FileNotFoundError as error:
        raise InputError(f"there is no input {path}") from error
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from error


def _is_trace_line(text: str) -> bool:
    """Returns whether a line is one of a trace: a JSON object with a type."""
    try:
        line = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(line, dict) and isinstance(line.get("type"), str) and "log" not in line


def _is_request_line(text: str) -> bool:
    return MARK in text


_IS_LINE_OF: Final[dict[Format, Callable[[str], bool]]] = {
    Format.KAFKA: _is_request_line,
    Format.INFO: is_coordinator_line,
    Format.OFFSETS: is_record_line,
    Format.TRACE: _is_trace_line,
}


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
