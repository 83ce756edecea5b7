"""The SQL shell on tables of this machine: it answers queries in this process, and starts Spark for all else.

A query is Spark's SQL all the same (sql.in_process). What can't be said in DuckDB's, and statements that are no
queries, go to Spark, which takes seconds to start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import deltalake
import duckdb
import sqlglot
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from sqlglot import exp

from coordinator_udf.sql.as_spark import as_spark_would
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.registration import NoTables, table_versions
from coordinator_udf.sql.results import Results
from coordinator_udf.sql.shapes import SHAPES, table_path, views_named
from coordinator_udf.sql.shell import Shell, Statements
from coordinator_udf.sql.typos import NAMES, BadStatement, is_of_table, meant, no_table, refuse_unknown_beginning
from schemas.view_comments import COLUMN_COMMENTS
from schemas.views import VIEWS

#: DuckDB's words for a function that it doesn't have, which Spark may have.
_NO_FUNCTION: Final = ("unction with name", "No function matches")


#: Statements that change a table.
_CHANGES: Final = (exp.Alter, exp.Delete, exp.Drop, exp.Insert, exp.Merge, exp.TruncateTable, exp.Update)
_SHOW: Final = re.compile(r"show\s+(tables|views)\s*", re.IGNORECASE)


class NeedsSpark(Exception):
    """A statement that can't be answered in this process."""


class LocalShell(Statements):
    """Runs statements on the tables of a folder of this machine.

    Args:
        folder: where the Delta tables are.
        log: the embedded request log, if there is one.
        start_spark: starts Spark, when a statement first needs it.
        results: writes them.
    """

    def __init__(
        self,
        folder: str,
        log: Path | None,
        start_spark: Callable[[], SparkSession],
        results: Results,
    ) -> None:
        self._folder, self._log, self._start_spark, self._results = folder, log, start_spark, results
        self._views: ViewsInProcess | None = None
        self._versions: tuple[object, ...] = ()
        self._spark_shell: Shell | None = None

    def run(self, statement: str) -> None:
        """Runs one statement and prints its result.

        Raises:
            BadStatement: it names a table or a column that isn't there, or fails after rows of its result were written.
            NoTables: there are no tables in the folder.
            PySparkException: Spark, where it was needed, refuses the statement or fails in running it.
        """
        try:
            columns, rows = self._answer(statement)
        except NeedsSpark:
            self._spark().run(statement)
            return
        self._results.write(columns, self._told(rows))

    def _answer(self, statement: str) -> tuple[list[str], Iterable[tuple[Any, ...]]]:
        refuse_unknown_beginning(statement)
        if (show := _SHOW.fullmatch(statement)) is not None and not self._is_of_spark():
            return self._show(show[1].lower())
        try:
            parsed = sqlglot.parse_one(statement, read="spark")
        except sqlglot.ParseError as error:
            raise NeedsSpark from error
        _refuse_changes(parsed)
        if (described := _described(parsed)) is not None:
            return self._describe(described)
        # A function that gives rows, such as range, has other columns in DuckDB.
        if not isinstance(parsed, exp.Query) or any(isinstance(t.this, exp.Func) for t in parsed.find_all(exp.Table)):
            raise NeedsSpark
        views = self._current()
        views.make(views_named(statement))
        try:
            return views.rows(as_spark_would(_with_names(parsed)))
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            if any(words in str(error) for words in _NO_FUNCTION) or (self._is_of_spark() and is_of_table(error)):
                raise NeedsSpark from error
            raise BadStatement(meant(error, sqlglot.parse_one(statement, read="spark"), views.columns)) from error
        except (duckdb.Error, sqlglot.errors.UnsupportedError) as error:
            raise NeedsSpark from error

    def _told(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Yields rows; that one can't be computed is told as what is wrong with the statement."""
        try:
            yield from rows
        except duckdb.Error as error:
            told = f"{meant(error)} (after rows that are written already; --spark has Spark answer)"
            raise BadStatement(told) from error

    def _is_of_spark(self) -> bool:
        """Returns whether statements were run that may have made tables and views in Spark."""
        return self._spark_shell is not None

    def _show(self, what: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Returns the tables and views, or the views alone, as Spark tells them."""
        tables = [] if what == "views" else self._tables()
        rows = [("", name, True) for name in sorted({*tables, *VIEWS})]
        return ["namespace", "viewName" if what == "views" else "tableName", "isTemporary"], rows

    def _describe(self, name: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Returns the columns of a table or view.

        Raises:
            BadStatement: there is none of this name.
        """
        if name not in NAMES:
            if self._is_of_spark():
                raise NeedsSpark
            raise BadStatement(no_table(name))
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
        names = self._tables()
        versions = (*names, *table_versions(self._folder, names))
        if self._views is None or versions != self._versions or self._log is not None:
            if self._views is not None:
                self._views.close()
            self._views, self._versions = ViewsInProcess(self._folder, self._log), versions
        return self._views

    def _tables(self) -> list[str]:
        """Returns the tables that there are.

        Raises:
            NoTables: there are none in the folder.
        """
        names = [name for name in SHAPES if deltalake.DeltaTable.is_deltatable(table_path(self._folder, name))]
        if not names:
            raise NoTables(f"no table in {self._folder}: expected Delta tables such as {next(iter(SHAPES))}")
        return names

    def _spark(self) -> Shell:
        if self._spark_shell is None:
            self._spark_shell = Shell(self._start_spark(), self._folder, self._results, self._log)
        return self._spark_shell


def _refuse_changes(parsed: exp.Expr) -> None:
    """Refuses to change what a coordinator or a replay wrote; the names are those of views of it.

    Raises:
        BadStatement: that is what a statement is to do.
    """
    if not isinstance(parsed, _CHANGES):
        return
    table = parsed.find(exp.Table)
    if table is not None and not table.db and table.name.lower() in NAMES:
        raise BadStatement(
            f"{table.name.lower()} is a view of what was written, and nothing changes it here; a Delta table itself is "
            f"delta.`PATH`"
        )


def _described(parsed: exp.Expr) -> str | None:
    """Returns the table or view whose columns a statement asks for; those of a catalog only Spark knows."""
    if not isinstance(parsed, exp.Describe) or not isinstance(parsed.this, exp.Table) or parsed.this.db:
        return None
    kind, style = parsed.args.get("kind"), parsed.args.get("style")
    return parsed.this.name.lower() if kind in (None, "TABLE") and style in (None, "EXTENDED", "FORMATTED") else None


def _with_names(parsed: exp.Query) -> exp.Query:
    """Gives what a query computes the names that Spark gives it, as ``count(1)``."""
    for select in parsed.selects:
        if isinstance(select, exp.Func):
            name = select.sql(dialect="spark", normalize_functions="lower").replace("count(*)", "count(1)")
            select.replace(exp.alias_(select.copy(), name, quoted=True))
    return parsed
