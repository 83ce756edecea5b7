"""The statements that make the tables and views those of a catalog, so that any Spark with a metastore can ask them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from coordinator_udf import stopping
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import SHAPES, log_beside, table_path, views_named
from schemas.view_comments import COLUMN_COMMENTS
from schemas.views import READ_EMBEDDED_PROTOCOL, VIEWS

#: A Hive metastore refuses longer ones.
_LONGEST_COMMENT: Final = 256
_MADE: Final = re.compile(r"CREATE (?:TABLE IF NOT EXISTS|OR REPLACE VIEW) (\S+)")


def statements_for(folder: str, schema: str | None = None) -> Iterator[str]:
    """Yields CREATE statements for a folder's tables and the views on them, in the order to run them in.

    Views that read assignments of classic groups are left out: they need a function in Python, which a catalog can't
    hold; a comment says so.

    Args:
        folder: where the Delta tables are; one that isn't there is made, without rows, when a statement is run.
        schema: where they shall be, as CATALOG.SCHEMA or SCHEMA; without it where the statements are run.
    """
    if schema is not None:
        yield f"CREATE SCHEMA IF NOT EXISTS {schema}"
        yield f"USE {schema}"
    for name, shape in SHAPES.items():
        yield create_table(name, folder, name, shape)
    # The columns of a view don't depend on what is in the tables.
    views = ViewsInProcess(None)
    for name, text in VIEWS.items():
        if _needs_function(name):
            yield f"-- {name} is left out: it needs the function {READ_EMBEDDED_PROTOCOL}"
            continue
        views.make(views_named(name))
        yield f"CREATE OR REPLACE VIEW {name} ({_columns(name, views.schema(name).names)}) AS {text.strip()}"
    views.close()


def install(spark: SparkSession, folder: str, schema: str, made: Callable[[str], None] = lambda _: None) -> list[str]:
    """Makes tables and views in a session, whose catalog keeps them; their names.

    What Spark would plan for a minute at each question, or needs a function in Python, is computed here and becomes a
    table with the rows of now, as an endpoint's (sql.endpoint).

    Args:
        folder: where the Delta tables are, on this machine.
        made: gets each name when its table or view is there.

    Raises:
        PySparkException: a statement is refused.
    """
    names = []
    for statement in statements_for(folder, schema):
        making = _MADE.match(statement)
        if statement.startswith("--") or (making is not None and making[1] in _computed()):
            continue
        spark.sql(statement)
        if making is not None:
            names.append(making[1])
            made(making[1])
    views = ViewsInProcess(folder, log_beside(folder))
    for name in _computed():
        views.make(views_named(name))
        if _is_view(spark, f"{schema}.{name}"):
            # As the printed statements make it.
            spark.sql(f"DROP VIEW {schema}.{name}")
        _keep(spark, views.arrow(name), schema, name)
        names.append(name)
        made(name)
    views.close()
    return names


def _keep(spark: SparkSession, rows: pa.Table, schema: str, name: str) -> None:
    """Makes a view's rows a table, in place of the one that was there."""
    with stopping.temporary_directory("muster-views-") as scratch:
        pq.write_table(rows, f"{scratch}/rows.parquet", coerce_timestamps="us")
        columns = StructType([StructField(field.name, from_arrow_type(field.type)) for field in rows.schema])
        frame = spark.read.schema(columns).parquet(scratch)
        for column in frame.columns:
            comment = _short_comment(name, column)
            frame = frame if comment is None else frame.withMetadata(column, {"comment": comment})
        frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").saveAsTable(f"{schema}.{name}")


def _computed() -> list[str]:
    """Returns the views that stand on `rebalances`, whose checks multiply, and those that need a function."""
    return [name for name in VIEWS if "rebalances" in views_named(name)[:-1] or _needs_function(name)]


def _needs_function(name: str) -> bool:
    return any(READ_EMBEDDED_PROTOCOL in VIEWS[each] for each in views_named(name))


def _is_view(spark: SparkSession, name: str) -> bool:
    return spark.catalog.tableExists(name) and spark.catalog.getTable(name).tableType == "VIEW"


def create_table(named: str, folder: str, name: str, shape: StructType) -> str:
    """Returns the statement that makes a table of a folder one of a catalog."""
    place = table_path(folder, name)
    # A table that is there says its columns itself; Delta compares others' with its own to the last comment.
    columns = "" if DeltaTable.is_deltatable(place) else f" ({_typed(shape)})"
    return f"CREATE TABLE IF NOT EXISTS {named}{columns} USING DELTA LOCATION '{quoted(place)}'"


def _typed(shape: StructType) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in shape)


def _columns(view: str, names: list[str]) -> str:
    return ", ".join(f"`{name}`{_comment(view, name)}" for name in names)


def _comment(view: str, column: str) -> str:
    comment = _short_comment(view, column)
    return "" if comment is None else f" COMMENT '{quoted(comment)}'"


def _short_comment(view: str, column: str) -> str | None:
    comment = COLUMN_COMMENTS.get(f"{view}.{column}", COLUMN_COMMENTS.get(column))
    if comment is None or len(comment) <= _LONGEST_COMMENT:
        return comment
    return f"{comment[: _LONGEST_COMMENT - 4]} ..."


def quoted(text: str) -> str:
    """Returns a text as it stands between quotes in Spark's SQL."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
