"""The statements that make the tables and views those of a catalog, so that any Spark with a metastore can ask them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import SHAPES, table_path, views_named
from schemas.view_comments import COLUMN_COMMENTS
from schemas.views import READ_EMBEDDED_PROTOCOL, VIEWS

#: A Hive metastore refuses longer ones.
_LONGEST_COMMENT: Final = 256
_MADE: Final = re.compile(r"CREATE (?:TABLE IF NOT EXISTS|OR REPLACE VIEW) (\S+)")


def statements_for(folder: str, schema: str) -> Iterator[str]:
    """CREATE statements for the tables of a folder and the views on them, in the order in which they have to be run.

    Views that read assignments of classic groups are left out: they need a function in Python, which a catalog can't
    hold; a comment says so.

    Args:
        folder: where the Delta tables are; one that isn't there is made, without rows, when a statement is run.
        schema: where they shall be, as CATALOG.SCHEMA or SCHEMA.
    """
    yield f"CREATE SCHEMA IF NOT EXISTS {schema}"
    yield f"USE {schema}"
    for name, shape in SHAPES.items():
        yield create_table(name, folder, name, shape)
    # The columns of a view don't depend on what is in the tables.
    views = ViewsInProcess(f"{folder}/none")
    for name, text in VIEWS.items():
        if any(READ_EMBEDDED_PROTOCOL in VIEWS[each] for each in views_named(name)):
            yield f"-- {name} is left out: it needs the function {READ_EMBEDDED_PROTOCOL}"
            continue
        views.make(views_named(name))
        yield f"CREATE OR REPLACE VIEW {name} ({_columns(name, views.schema(name).names)}) AS {text.strip()}"
    views.close()


def install(spark: SparkSession, folder: str, schema: str) -> list[str]:
    """Runs the statements in a session, whose catalog keeps what they make; the names of the tables and views.

    Raises:
        PySparkException: one is refused.
    """
    names = []
    for statement in statements_for(folder, schema):
        if statement.startswith("--"):
            continue
        spark.sql(statement)
        made = _MADE.match(statement)
        if made is not None:
            names.append(made[1])
    return names


def create_table(named: str, folder: str, name: str, shape: StructType) -> str:
    """The statement that makes a table of a folder one of a catalog."""
    place = table_path(folder, name)
    # A table that is there says its columns itself; Delta compares others' with its own to the last comment.
    columns = "" if DeltaTable.is_deltatable(place) else f" ({_typed(shape)})"
    return f"CREATE TABLE IF NOT EXISTS {named}{columns} USING DELTA LOCATION '{quoted(place)}'"


def _typed(shape: StructType) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in shape)


def _columns(view: str, names: list[str]) -> str:
    return ", ".join(f"`{name}`{_comment(view, name)}" for name in names)


def _comment(view: str, column: str) -> str:
    comment = COLUMN_COMMENTS.get(f"{view}.{column}", COLUMN_COMMENTS.get(column))
    if comment is None:
        return ""
    short = comment if len(comment) <= _LONGEST_COMMENT else f"{comment[: _LONGEST_COMMENT - 4]} ..."
    return f" COMMENT '{quoted(short)}'"


def quoted(text: str) -> str:
    """A text as it stands between quotes in Spark's SQL."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
