"""The SQL shell on tables of this machine: it answers queries in this process, and starts Spark for all else.

A query is Spark's SQL all the same (sql.in_process). What can't be said in DuckDB's, and statements that are no
queries, go to Spark, which takes seconds to start.
"""

from __future__ import annotations

import csv
import difflib
import json
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import deltalake
import duckdb
import sqlglot
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from sqlglot import exp

from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.registration import NoTables, table_versions
from coordinator_udf.sql.shapes import SHAPES, table_path, views_named
from coordinator_udf.sql.shell import OutputFormat, Shell, Statements, cell
from coordinator_udf.user_errors import UserError
from schemas.view_comments import COLUMN_COMMENTS
from schemas.views import VIEWS

#: DuckDB's words for a function that it doesn't have, which Spark may have.
_NO_FUNCTION: Final = ("unction with name", "No function matches")


#: The words that a statement of Spark's SQL begins with.
_BEGINNINGS: Final = frozenset(
    {
        "add", "alter", "analyze", "begin", "cache", "call", "clear", "comment", "convert", "create", "declare",
        "delete", "desc", "describe", "drop", "execute", "explain", "export", "from", "grant", "import",
        "insert", "list", "load", "map", "merge", "msck", "optimize", "pivot", "reduce", "refresh", "repair",
        "replace", "reset", "restore", "revoke", "select", "set", "show", "table", "truncate", "uncache",
        "update", "use", "vacuum", "values", "with",
    }
)  # fmt: skip


class BadStatement(UserError):
    """A statement names what isn't there."""


class NeedsSpark(Exception):
    """A statement that can't be answered in this process."""


class LocalShell(Statements):
    """Runs statements on the tables of a folder of this machine.

    Args:
        folder: where the Delta tables are.
        log: the embedded request log, if there is one.
        start_spark: starts Spark, when a statement first needs it.
        max_rows: how many rows of a result are shown.
        vertical: one line a column instead of one line a row.
        form: how results are written.
    """

    def __init__(
        self,
        folder: str,
        log: Path | None,
        start_spark: Callable[[], SparkSession],
        *,
        max_rows: int,
        vertical: bool,
        form: OutputFormat = OutputFormat.TABLE,
    ) -> None:
        self._folder, self._log, self._start_spark = folder, log, start_spark
        self._max_rows, self._vertical, self._form = max_rows, vertical, form
        self._views: ViewsInProcess | None = None
        self._versions: tuple[object, ...] = ()
        self._spark_shell: Shell | None = None

    def run(self, statement: str) -> None:
        """Runs one statement and prints its result.

        Raises:
            BadStatement: it names a table or a column that isn't there.
            NoTables: there are no tables in the folder.
            PySparkException: Spark, where it was needed, refuses the statement or fails in running it.
        """
        try:
            columns, rows = self._answer(statement)
        except NeedsSpark:
            self._spark().run(statement)
            return
        self._show(columns, rows)

    def _answer(self, statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        refuse_unknown(statement)
        try:
            parsed = sqlglot.parse_one(statement, read="spark")
        except sqlglot.ParseError as error:
            raise NeedsSpark from error
        if isinstance(parsed, exp.Describe) and parsed.this.name in {*SHAPES, *VIEWS}:
            return self._describe(parsed.this.name)
        if not isinstance(parsed, exp.Query):
            raise NeedsSpark
        views = self._current()
        views.make(views_named(statement))
        try:
            return views.rows(_with_names(parsed), self._max_rows + 1)
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            if any(words in str(error) for words in _NO_FUNCTION):
                raise NeedsSpark from error
            raise BadStatement(_meant(error)) from error
        except (duckdb.Error, sqlglot.errors.UnsupportedError) as error:
            raise NeedsSpark from error

    def _describe(self, name: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        views = self._current()
        views.make(views_named(name))
        told = [
            (field.name, from_arrow_type(field.type).simpleString(),
             COLUMN_COMMENTS.get(f"{name}.{field.name}", COLUMN_COMMENTS.get(field.name)) if name in VIEWS else None)
            for field in views.schema(name)
        ]  # fmt: skip
        return ["col_name", "data_type", "comment"], told

    def _current(self) -> ViewsInProcess:
        """Returns the tables as they are now: a running coordinator goes on writing."""
        names = [name for name in SHAPES if deltalake.DeltaTable.is_deltatable(table_path(self._folder, name))]
        if not names:
            raise NoTables(f"no table in {self._folder}: expected Delta tables such as {next(iter(SHAPES))}")
        versions = (*names, *table_versions(self._folder, names))
        if self._views is None or versions != self._versions or self._log is not None:
            if self._views is not None:
                self._views.close()
            self._views, self._versions = ViewsInProcess(self._folder, self._log), versions
        return self._views

    def _spark(self) -> Shell:
        if self._spark_shell is None:
            how: dict[str, Any] = {"max_rows": self._max_rows, "vertical": self._vertical, "form": self._form}
            self._spark_shell = Shell(self._start_spark(), self._folder, self._log, **how)
        return self._spark_shell

    def _show(self, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
        more, shown = len(rows) > self._max_rows, rows[: self._max_rows]
        if self._form is OutputFormat.CSV:
            writer = csv.writer(sys.stdout)
            writer.writerow(columns)
            writer.writerows([cell(value) for value in row] for row in shown)
        elif self._form is OutputFormat.JSON:
            for row in shown:
                named = {name: value for name, value in zip(columns, row, strict=True) if value is not None}
                print(json.dumps(named, default=_json, separators=(",", ":")))
        elif self._vertical:
            print(vertical_table(columns, shown), end="")
        else:
            print(table(columns, shown))
        if more and self._form is OutputFormat.TABLE:
            print(f"only showing top {self._max_rows} rows\n")


def refuse_unknown(statement: str) -> None:
    """Sees a typo in a statement's first word, for which Spark need not be started.

    Raises:
        BadStatement: no statement begins with it.
    """
    first = re.match(r"(?:\s|--.*\n|/\*.*?\*/|\()*([A-Za-z]\w*)", statement, re.DOTALL)
    if first is None or first[1].lower() in _BEGINNINGS:
        return
    near = difflib.get_close_matches(first[1].lower(), _BEGINNINGS, 1)
    hint = f"; did you mean {near[0].upper()}?" if near else ""
    raise BadStatement(f"no statement begins with {first[1]}{hint}")


def _with_names(parsed: exp.Query) -> exp.Query:
    """Gives what a query computes the names that Spark gives it, as ``count(1)``."""
    for select in parsed.selects:
        if isinstance(select, exp.Func):
            name = select.sql(dialect="spark", normalize_functions="lower").replace("count(*)", "count(1)")
            select.replace(exp.alias_(select.copy(), name, quoted=True))
    return parsed


def _meant(error: duckdb.Error) -> str:
    """Returns what is wrong, and what may have been meant, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not re.match(r"LINE \d+:|\^", line)]
    first = re.sub(r"^\w+ Error: ", "", told[0])
    missing = re.match(r"Table with name (\w+) does not exist", first)
    if missing is not None:
        near = difflib.get_close_matches(missing[1], [*SHAPES, *VIEWS], 3)
        return f"there is no table or view {missing[1]}" + (f"; did you mean {', '.join(near)}?" if near else "")
    hints = [line for line in told[1:] if line.startswith(("Candidate bindings", "Did you mean"))]
    return " ".join([first, *hints])


def _json(value: Any) -> Any:
    return value.isoformat(timespec="milliseconds") + "Z" if isinstance(value, datetime) else str(value)


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


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns rows as Spark prints them."""
    cells = [list(columns), *([text_of(value) for value in row] for row in rows)]
    widths = [max(3, *(len(row[place]) for row in cells)) for place in range(len(columns))]
    rule = "+" + "+".join("-" * width for width in widths) + "+"
    lines = [
        "|" + "|".join(value.ljust(width) for value, width in zip(row, widths, strict=True)) + "|" for row in cells
    ]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule, ""])


def vertical_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns rows as Spark prints them with a line a column."""
    width = max(len(name) for name in columns)
    values = [[text_of(value) for value in row] for row in rows]
    longest = max((len(value) for row in values for value in row), default=3)
    lines = []
    for number, row in enumerate(values):
        lines.append(f"-RECORD {number}".ljust(width + longest + 5, "-"))
        lines += [f" {name.ljust(width)} | {value.ljust(longest)} " for name, value in zip(columns, row, strict=True)]
    return "\n".join([*lines, "", ""])
