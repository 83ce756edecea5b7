"""A small SQL shell over the tables of a coordinator: statements that are given, or as they are typed."""

from __future__ import annotations

import io
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Final, TextIO

import sqlparse
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.registration import (
    make_views,
    register,
    register_log,
    table_versions,
    tables_in,
)
from coordinator_udf.sql.results import OutputFormat, Results
from coordinator_udf.sql.shapes import views_named
from coordinator_udf.user_errors import UserError
from schemas.tables import TABLES
from schemas.views import INCIDENT_VIEWS, VIEWS

BANNER: Final = f"""tables: {", ".join(TABLES)}, request_log, coordinator_log
views:  {", ".join(VIEWS)}
A statement ends with ; and the shell with exit; or Ctrl-D. DESCRIBE <table or view>; tells its columns."""

#: What Spark prints below a table that has more rows.
_ONLY_TOP: Final = re.compile(r"only showing top \d+ rows?\s*\Z")
_END: Final = frozenset({"exit", "quit"})

Say = Callable[[str], None]


class Statements(ABC):
    """Runs statements that are given, or as they are typed."""

    @abstractmethod
    def run(self, statement: str) -> None:
        """Runs one statement and prints its result.

        Raises:
            PySparkException, Py4JError, UserError: it can't be run.
        """

    def run_all(self, text: str) -> None:
        """Runs the statements of a text; the first that fails ends it.

        Raises:
            PySparkException, Py4JError, UserError: as `run`.
        """
        for statement in split(text):
            if statement.lower() in _END:
                return
            self.run(statement)
            # Who reads along through a pipe, or a file, waits for it.
            sys.stdout.flush()

    def interact(self, lines: TextIO = sys.stdin, say: Say = print) -> bool:
        """Runs statements until the input ends, also after one that fails; whether all went well."""
        if not lines.isatty():
            return self._run_each(lines, say)
        from coordinator_udf.sql.terminal import KnownColumns, typed_lines

        say(BANNER)
        with typed_lines(KnownColumns()) as typed:
            return self._run_each(typed, say)

    def _run_each(self, lines: Iterator[str], say: Say) -> bool:
        well = True
        for statement in statements(lines):
            if statement.lower() in _END:
                break
            try:
                self.run(statement)
            except (PySparkException, Py4JError, UserError) as error:
                well = False
                say(in_a_line(error))
            sys.stdout.flush()
        return well


class Shell(Statements):
    """Runs statements in a session in which the tables of one folder are registered.

    Args:
        spark: a session with Delta's extension and catalog.
        tables: the folder with the Delta tables.
        results: writes them.
        log: the embedded request log, if there is one.
    """

    def __init__(
        self,
        spark: SparkSession,
        tables: str,
        results: Results,
        log: Path | None = None,
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._log = log
        self._results = results
        #: The tables that are registered, with the versions as of which they are.
        self._registered: tuple[tuple[str, ...], tuple[int, ...]] | None = None
        #: The views that were made on those.
        self._made: set[str] = set()
        self._in_process: ViewsInProcess | None = None

    def run(self, statement: str) -> None:
        """Runs one statement and prints its result.

        Raises:
            PySparkException: Spark refuses the statement, or fails in running it.
            NoTables: there are no tables in the folder.
        """
        self._register()
        views = [name for name in views_named(statement) if name not in self._made]
        if "://" not in self._tables and self._in_process is None and INCIDENT_VIEWS.keys() & set(views):
            self._in_process = ViewsInProcess(self._tables, self._log)
        make_views(self._spark, views, self._in_process)
        self._made.update(views)
        self._show(self._spark.sql(statement))

    def _register(self) -> None:
        """Registers the tables as they are, unless that is done: a running coordinator goes on writing."""
        names = tables_in(self._spark, self._tables)
        versions = () if "://" in self._tables else table_versions(self._tables, names)
        if (names, versions) != self._registered or "://" in self._tables:
            register(self._spark, self._tables, self._log, as_they_are=True, views=())
            self._registered = (names, versions)
            self._forget()
        elif self._log is not None:
            # What the view shows of the log ends where the log ended when it was made.
            register_log(self._spark, self._log)
            self._forget()

    def _forget(self) -> None:
        """Forgets what was computed from the tables."""
        self._made.clear()
        if self._in_process is not None:
            self._in_process.close()
            self._in_process = None

    def _show(self, result: DataFrame) -> None:
        limit = self._results.limit
        if self._results.form is OutputFormat.TABLE and limit is not None:
            with redirect_stdout(io.StringIO()) as shown:
                result.show(limit, truncate=False, vertical=self._results.vertical)
            table = _ONLY_TOP.sub("", shown.getvalue())
            print(table, end="")
            if table != shown.getvalue():
                self._results.tell_of_more()
            return
        rows = result if limit is None else result.limit(limit + 1)
        if self._results.form is OutputFormat.JSON:
            # Of a classic session these are texts.
            self._results.write_lines(map(str, rows.toJSON().toLocalIterator()))
        else:
            self._results.write(rows.columns, rows.toLocalIterator())


def in_a_line(error: Exception) -> str:
    """Returns what is wrong with a statement, and what may have been meant, without Spark's plan of it.

    Of what the JVM says in which Spark is, the first that isn't just what waited for a thread that failed.
    """
    causes = re.findall(r"^(?:Caused by)?: (.+)$", str(error), re.MULTILINE) if isinstance(error, Py4JError) else []
    for cause in causes:
        if not cause.rstrip().endswith("awaitResult:"):
            return f"Spark failed: {cause.partition('SQLSTATE')[0].strip()}"
    first = str(error).partition("SQLSTATE")[0].strip()
    text = re.sub(r"^\[[A-Z_.]+\]\s*", "", first)
    return " ".join(text.split()) or type(error).__name__


def split(text: str) -> list[str]:
    """Returns the statements of a text, without the ; that ends each."""
    return [statement.rstrip("; \n\t") for statement in sqlparse.split(text) if statement.strip("; \n\t")]


def statements(lines: Iterator[str]) -> Iterator[str]:
    """Yields statements as their lines come; each ends with a ;, but the last one, which needs none."""
    pending: list[str] = []
    for line in lines:
        pending.append(line.rstrip("\n"))
        if line.rstrip().endswith(";") or (len(pending) == 1 and line.strip().lower() in _END):
            yield from split("\n".join(pending))
            pending = []
    yield from split("\n".join(pending))
