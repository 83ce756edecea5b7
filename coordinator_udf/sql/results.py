"""How results are written: as tables, for people, and as CSV and JSON, for other programs."""

from __future__ import annotations

import csv
import json
import re
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from math import inf, isfinite
from typing import Any, Final

#: As many rows of a table are shown, unless another number is asked for: people read no further.
TABLE_ROWS: Final = 1_000


class OutputFormat(StrEnum):
    """How results are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


@dataclass(frozen=True)
class Results:
    """Writes results on stdout.

    Attributes:
        form: how.
        max_rows: how many rows of a result are written; without it all, but of a table `TABLE_ROWS`.
        vertical: of a table, one line a column instead of one line a row.
    """

    form: OutputFormat = OutputFormat.TABLE
    max_rows: int | None = None
    vertical: bool = False

    @property
    def limit(self) -> int | None:
        """How many rows of a result are written at most."""
        return TABLE_ROWS if self.max_rows is None and self.form is OutputFormat.TABLE else self.max_rows

    def write(self, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
        """Writes a result; CSV and JSON as the rows come, so that no more of them than these need be in memory."""
        shown = islice(rows, self.limit)
        if self.form is OutputFormat.CSV:
            writer = csv.writer(sys.stdout)
            writer.writerow(columns)
            writer.writerows([_cell(value) for value in row] for row in shown)
        elif self.form is OutputFormat.JSON:
            for row in shown:
                named = {name: _plain(value) for name, value in zip(columns, row, strict=True) if value is not None}
                print(json.dumps(named, separators=(",", ":"), allow_nan=False))
        elif self.vertical:
            print(_vertical_table(columns, list(shown)), end="")
        else:
            print(_table(columns, list(shown)))
        self._tell_of_rest(rows)

    def write_lines(self, lines: Iterator[str]) -> None:
        """Writes rows that are JSON already."""
        for line in islice(lines, self.limit):
            print(line)
        self._tell_of_rest(lines)

    def tell_of_more(self) -> None:
        """Says that there are more rows than are shown, where it is no part of the result."""
        sys.stdout.flush()
        print(f"sql: there are more rows than the {self.limit} that are shown; --rows sets how many", file=sys.stderr)

    def _tell_of_rest(self, rest: Iterator[object]) -> None:
        if self.limit is not None and any(True for _ in rest):
            self.tell_of_more()


def _cell(value: object) -> object:
    """Returns a value as a cell of a CSV file."""
    if isinstance(value, bytes | bytearray | memoryview):
        return _plain(value)
    return json.dumps(_plain(value), allow_nan=False) if isinstance(value, list | dict | tuple) else value


def _plain(value: Any) -> Any:
    """Returns a value as JSON has it, as Spark's to_json writes it: bytes in base64, numbers as such but for NaN."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if isfinite(value):
            return value
        case float():
            return {inf: "Infinity", -inf: "-Infinity"}.get(value, "NaN")
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime():
            return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        case bytes() | bytearray() | memoryview():
            return b64encode(value).decode()
        case list() | tuple():
            return [_plain(each) for each in value]
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case _:
            return str(value)


def text_of(value: Any) -> str:
    """Returns a value as Spark shows it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return re.sub(r"\.?0*$", "", value.strftime("%Y-%m-%d %H:%M:%S.%f"))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{text_of(name)} -> {text_of(each)}' for name, each in value.items())}}}"
    if isinstance(value, bytes):
        return f"[{value.hex(' ').upper()}]"
    return str(value)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns rows as Spark prints them."""
    cells = [list(columns), *([text_of(value) for value in row] for row in rows)]
    widths = [max(3, *(len(row[place]) for row in cells)) for place in range(len(columns))]
    rule = "+" + "+".join("-" * width for width in widths) + "+"
    lines = [
        "|" + "|".join(value.ljust(width) for value, width in zip(row, widths, strict=True)) + "|" for row in cells
    ]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule, ""])


def _vertical_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns rows as Spark prints them with a line a column."""
    width = max(len(name) for name in columns)
    values = [[text_of(value) for value in row] for row in rows]
    longest = max((len(value) for row in values for value in row), default=3)
    lines = []
    for number, row in enumerate(values):
        lines.append(f"-RECORD {number}".ljust(width + longest + 5, "-"))
        lines += [f" {name.ljust(width)} | {value.ljust(longest)} " for name, value in zip(columns, row, strict=True)]
    return "\n".join([*lines, "", ""])
