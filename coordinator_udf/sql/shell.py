"""A small SQL shell over the tables of a coordinator: one statement, or statements as they are typed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TextIO

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from coordinator_udf.sql.registration import (
    register,
    register_incident_views,
    register_log,
    table_versions,
    tables_in,
    views_named,
)
from schemas.tables import TABLES
from schemas.views import VIEWS

BANNER: Final = f"""tables: {", ".join(TABLES)}, request_log
views:  {", ".join(VIEWS)}
A statement ends with ; and the shell with Ctrl-D. DESCRIBE <table or view>; tells its columns."""

Say = Callable[[str], None]


class Shell:
    """Runs statements in a session in which the tables of one folder are registered.

    Args:
        spark: a session with Delta's extension and catalog.
        tables: the folder with the Delta tables.
        log: the embedded request log, if there is one.
        max_rows: how many rows of a result are shown.
        vertical: one line a column instead of one line a row.
    """

    def __init__(
        self, spark: SparkSession, tables: str, log: Path | None = None, *, max_rows: int, vertical: bool
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._log = log
        self._max_rows = max_rows
        self._vertical = vertical
        self._registered: tuple[str, ...] = ()
        #: The incident views that were computed, and the tables' versions that they were computed from.
        self._computed: set[str] = set()
        self._versions: tuple[int, ...] = ()

    def run(self, statement: str) -> None:
        """Runs one statement and prints its result.

        Raises:
            PySparkException: Spark refuses the statement, or fails in running it.
            NoTables: there are no tables in the folder.
        """
        # A running coordinator makes a table when it first has a row for it.
        if tables_in(self._spark, self._tables) != self._registered:
            self._registered = register(self._spark, self._tables, self._log)
        elif self._log is not None:
            # What the view shows of the log ends where the log ended when it was made.
            register_log(self._spark, self._log)
        self._compute(views_named(statement))
        self._spark.sql(statement).show(self._max_rows, truncate=False, vertical=self._vertical)

    def _compute(self, names: list[str]) -> None:
        """Computes the incident views that are asked for, unless they are as of the tables' newest versions."""
        if not names:
            return
        versions = table_versions(self._tables, self._registered)
        if versions != self._versions or self._log is not None:
            self._computed.clear()
            self._versions = versions
        register_incident_views(self._spark, [name for name in names if name not in self._computed])
        self._computed.update(names)

    def interact(self, lines: TextIO = sys.stdin, say: Say = print) -> None:
        """Runs statements until the input ends; one that fails doesn't end the shell."""
        say(BANNER)
        for statement in statements(typed_lines(lines)):
            try:
                self.run(statement)
            except PySparkException as error:
                say(str(error))


def typed_lines(lines: TextIO) -> Iterator[str]:
    """The lines of a file; of a terminal with a prompt, line editing and history."""
    if not lines.isatty():
        yield from lines
        return
    import readline  # noqa: F401  # editing and history of input()

    prompt = "sql> "
    while True:
        try:
            line = input(prompt)
        except (EOFError, KeyboardInterrupt):
            return
        yield line
        prompt = "sql> " if not line.strip() or line.rstrip().endswith(";") else "...> "


def statements(lines: Iterator[str]) -> Iterator[str]:
    """Statements, without the ; at the end of a line that ends each; the last one needs none."""
    pending: list[str] = []
    for line in lines:
        text = line.strip()
        ends = text.endswith(";")
        pending.append(text.rstrip(";") if ends else text)
        if ends:
            yield from _whole(pending)
            pending = []
    yield from _whole(pending)


def _whole(lines: list[str]) -> Iterator[str]:
    statement = "\n".join(lines).strip()
    if statement:
        yield statement
