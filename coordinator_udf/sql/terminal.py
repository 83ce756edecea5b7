"""Lines as they are typed: line editing, completion of names, and history."""

from __future__ import annotations

import re
import readline
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import SHAPES, views_named
from schemas.views import VIEWS

HISTORY: Final = "~/.muster_history"
#: As many lines of input are remembered, as in bash (HISTSIZE has 500 there).
_HISTORY_LINES: Final = 1_000
#: Words of Spark's SQL that are worth a key less.
KEYWORDS: Final = (
    "AND", "AS", "ASC", "BETWEEN", "BY", "CASE", "CAST", "COUNT", "CREATE", "CROSS", "DESC", "DESCRIBE", "DISTINCT",
    "ELSE", "END", "EXCEPT", "EXISTS", "EXPLAIN", "FALSE", "FROM", "FULL", "GROUP", "HAVING", "IN", "INNER",
    "INTERSECT", "INTERVAL", "IS", "JOIN", "LEFT", "LIKE", "LIMIT", "NOT", "NULL", "ON", "OR", "ORDER", "OUTER", "OVER",
    "PARTITION",
    "RIGHT", "RLIKE", "SELECT", "SHOW", "TABLES", "TEMPORARY", "THEN", "TRUE", "UNION", "USING", "VALUES", "VIEW",
    "WHEN", "WHERE", "WITH",
)  # fmt: skip

ColumnsOf = Callable[[str], Sequence[str]]


class KnownColumns:
    """Gives the columns of tables and views, which don't depend on what is in the tables."""

    def __init__(self) -> None:
        self._views: ViewsInProcess | None = None

    def __call__(self, name: str) -> Sequence[str]:
        """Returns the columns of a table or view; a view's are known once it was computed on empty tables."""
        if name in SHAPES:
            return SHAPES[name].names
        if self._views is None:
            self._views = ViewsInProcess(None)
        self._views.make(views_named(name))
        return self._views.columns(name)


def completions(text: str, statement: str, columns_of: ColumnsOf, *, is_of_table: bool = False) -> list[str]:
    """Returns what a word may become: a table, a view, a column of those that are named, or one of SQL's words.

    Args:
        text: how the word begins.
        statement: the statement so far, with what follows the word.
        columns_of: gives the columns of a table or view.
        is_of_table: the word follows a table's name and a point.
    """
    named = set(re.findall(r"\w+", statement.lower())) & {*SHAPES, *VIEWS}
    words = sorted({column for name in named for column in columns_of(name)})
    if not is_of_table:
        words = [*SHAPES, *VIEWS, *words]
        # All of them, with nothing typed, would hide the rest.
        words += [word.lower() if text.islower() else word for word in KEYWORDS if text]
    return list(dict.fromkeys(word for word in words if word.lower().startswith(text.lower())))


class _Editor:
    """Asks for lines, and completes what is typed of them."""

    def __init__(self, columns_of: ColumnsOf) -> None:
        self._columns_of = columns_of
        #: The lines of the statement before the one that is typed.
        self._before: list[str] = []
        self._offered: list[str] = []

    def lines(self) -> Iterator[str]:
        """Yields lines until the input ends."""
        while True:
            try:
                line = input("...> " if self._before else "sql> ")
            except EOFError:
                return
            yield line
            if line.rstrip().endswith(";"):
                self._before = []
            elif line.strip():
                self._before.append(line)

    def complete(self, text: str, number: int) -> str | None:
        """Returns what the word before the cursor may become, by number, as readline asks for it."""
        if number == 0:
            line = readline.get_line_buffer()
            statement = "\n".join([*self._before, line])
            is_of_table = line[: readline.get_begidx()].endswith(".")
            self._offered = completions(text, statement, self._columns_of, is_of_table=is_of_table)
        return self._offered[number] if number < len(self._offered) else None


@contextmanager
def typed_lines(columns_of: ColumnsOf) -> Iterator[Iterator[str]]:
    """Gives the lines that are typed at a terminal, and keeps them for the next time."""
    editor = _Editor(columns_of)
    readline.set_completer(editor.complete)
    # A column may follow its table's name and a point.
    readline.set_completer_delims("".join({*readline.get_completer_delims(), "."}))
    readline.parse_and_bind("tab: complete")
    readline.set_history_length(_HISTORY_LINES)
    history = Path(HISTORY).expanduser()
    if history.is_file():
        _tried(readline.read_history_file, history, "read")
    try:
        yield editor.lines()
    finally:
        _tried(readline.write_history_file, history, "written, so that what was typed isn't kept")


def _tried(what: Callable[[Path], None], history: Path, done: str) -> None:
    """Reads or writes the history; that this can't be done is told, and ends no shell."""
    try:
        what(history)
    except OSError as error:
        print(f"sql: {history} can't be {done}: {error.strerror}", file=sys.stderr)
