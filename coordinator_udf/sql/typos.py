"""What is wrong with a statement that names what isn't there, and what may have been meant, in one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import duckdb
from sqlglot import exp

from coordinator_udf.sql.shapes import SHAPES
from coordinator_udf.user_errors import UserError
from schemas.views import VIEWS

#: The tables and views that can be asked.
NAMES: Final = (*SHAPES, *VIEWS)
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
#: DuckDB's words for a table and for a column that isn't there; of a column with its table, if the statement says one.
_NO_TABLE: Final = re.compile(r"Table with name (?P<name>\w+) does not exist")
_NO_COLUMN: Final = re.compile(
    r'Referenced column "(?P<name>[^"]+)" not found|"(?P<table>[^"]+)" does not have a column named "(?P<of_it>[^"]+)"'
)


class BadStatement(UserError):
    """A statement names what isn't there."""


def refuse_unknown_beginning(statement: str) -> None:
    """Sees a typo in a statement's first word, for which Spark need not be started.

    Raises:
        BadStatement: no statement begins with it.
    """
    first = re.match(r"(?:\s|--.*\n|/\*.*?\*/|\()*([A-Za-z]\w*)", statement, re.DOTALL)
    if first is None or first[1].lower() in _BEGINNINGS:
        return
    near = _near(first[1], _BEGINNINGS, 1)
    hint = f"; did you mean {near[0].upper()}?" if near else ""
    raise BadStatement(f"no statement begins with {first[1]}{hint}")


def no_table(name: str) -> str:
    """Returns what is said of a table or view that isn't there."""
    near = _near(name, NAMES, 3)
    return f"there is no table or view {name}" + (f"; did you mean {', '.join(near)}?" if near else "")


def is_of_table(error: duckdb.Error) -> bool:
    """Returns whether DuckDB doesn't know a table."""
    return _NO_TABLE.search(str(error)) is not None


def meant(
    error: duckdb.Error, asked: exp.Expr | None = None, columns_of: Callable[[str], Sequence[str]] = lambda _: ()
) -> str:
    """Returns what is wrong with a statement.

    Args:
        error: what DuckDB says of it.
        asked: the statement, as it was given; without it nothing is looked up.
        columns_of: gives the columns of a table or view.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not re.match(r"LINE \d+:|\^", line)]
    first = re.sub(r"^[\w ]+ Error: ", "", told[0])
    table, column = _NO_TABLE.match(first), _NO_COLUMN.search(first)
    if table is not None:
        return no_table(table["name"])
    if column is not None and asked is not None:
        name, of = column["name"] or column["of_it"], column["table"]
        tables = {each.alias_or_name: each.name.lower() for each in asked.find_all(exp.Table)}
        asked_of = list(dict.fromkeys(each for each in ([tables[of]] if of in tables else tables.values())))
        if asked_of and all(each in NAMES for each in asked_of):
            return _no_column(name, {each: columns_of(each) for each in asked_of}, _aliases(asked))
    hints = [line for line in told[1:] if line.startswith(("Candidate", "Did you mean"))]
    return " ".join([first, *hints]).replace(": :", ":")


def _no_column(name: str, columns: dict[str, Sequence[str]], aliases: Iterable[str]) -> str:
    near = _near(name, {each for of_one in columns.values() for each in of_one} | set(aliases), 1)
    described = " and ".join(f"DESCRIBE {each}" for each in columns)
    hint = f"did you mean {near[0]}?" if near else f"{described} tells which there are"
    return f"there is no column {name} in {', '.join(columns)}; {hint}"


def _aliases(asked: exp.Expr) -> list[str]:
    return [each.alias for each in asked.find_all(exp.Alias)]


def _near(name: str, names: Iterable[str], count: int) -> list[str]:
    return difflib.get_close_matches(name.lower(), sorted(names), count)
