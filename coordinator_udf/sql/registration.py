"""The tables of a coordinator as tables of a Spark session, and the views on them (schemas.views)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import deltalake
from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from coordinator_udf.log.dataframe import request_log
from coordinator_udf.sql.embedded_protocol import read_embedded_protocol
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import SHAPES, files_alone, table_path, views_named
from coordinator_udf.user_errors import InputError
from schemas.requests import REQUEST_LOG_TABLE
from schemas.view_comments import COLUMN_COMMENTS
from schemas.views import INCIDENT_VIEWS, READ_EMBEDDED_PROTOCOL, VIEWS

#: The views that every session has: what a running coordinator is asked, and it goes on writing.
_AS_TEXT: Final = [name for name in VIEWS if name not in INCIDENT_VIEWS or name in {"reliability", "rebalances"}]
#: How much of the tables' files, in bytes, one task groups and joins, until there are so many tasks.
_BYTES_OF_A_PART: Final = 32 << 20
_MOST_PARTS: Final = 64

_EMBEDDED: Final = StructType(
    [
        StructField("topics", ArrayType(StringType()), True),
        StructField("partitions", MapType(StringType(), ArrayType(IntegerType())), True),
        StructField("details", StringType(), True),
        StructField("error", StringType(), True),
    ]
)


class NoTables(InputError):
    """There is nothing to ask about where the tables should be."""


def tables_in(spark: SparkSession, folder: str) -> tuple[str, ...]:
    """Returns the names of the tables that are in a folder.

    Raises:
        NoTables: there is none at all.
    """
    if "://" in folder:
        found = tuple(name for name in SHAPES if DeltaTable.isDeltaTable(spark, table_path(folder, name)))
    else:
        found = tuple(name for name in SHAPES if deltalake.DeltaTable.is_deltatable(table_path(folder, name)))
    if not found:
        raise NoTables(f"no table in {folder}: expected Delta tables such as {folder}/{next(iter(SHAPES))}")
    return found


def register(
    spark: SparkSession,
    folder: str,
    log: Path | None = None,
    *,
    as_they_are: bool = False,
    views: Iterable[str] | None = None,
) -> tuple[str, ...]:
    """Makes the tables in a folder and the views on them temporary views of the session.

    The views that explain an incident are made by `make_views`.

    A table that isn't there, since nothing was written to it yet, is registered as an empty one. To be called again
    to see tables that came to be since; rows that were added to a table are seen without.

    Args:
        spark: a session with Delta's extension and catalog.
        folder: where the Delta tables are, as a path of any file system that Spark knows.
        log: the embedded request log, if there is one: then request_log is what it holds and its history; else it is
            the table request_log.
        as_they_are: whether the tables' files of now are meant, which plans faster: rows that are added later aren't
            seen.
        views: the views to make; by default those that can be asked as text.

    Returns:
        The names of the tables that are there.

    Raises:
        NoTables: there is no table at all in the folder.
        LogError: the embedded log can't be read.
    """
    found = tables_in(spark, folder)
    for name, shape in SHAPES.items():
        snapshot = _snapshot(spark, folder, name) if as_they_are and name in found else None
        if snapshot is not None:
            snapshot.createOrReplaceTempView(name)
        elif name in found:
            path = table_path(folder, name).replace("`", "``")
            # As text, not as a DataFrame: so every query sees the table's newest version.
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT * FROM delta.`{path}`")
        else:
            nulls = ", ".join(f"CAST(NULL AS {field.dataType.simpleString()}) AS {field.name}" for field in shape)
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT {nulls} WHERE false")
    if log is not None:
        register_log(spark, log)
    if not spark.catalog.functionExists(READ_EMBEDDED_PROTOCOL):
        spark.udf.register(READ_EMBEDDED_PROTOCOL, read_embedded_protocol, _EMBEDDED)
    for name in _AS_TEXT if views is None else ():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {VIEWS[name]}")
    make_views(spark, views or ())
    return found


def fit_to_size(spark: SparkSession, folder: str) -> None:
    """Lets the session group and join in as many parts as tables on this machine need.

    For small ones a second part costs more than it saves.
    """
    if "://" not in folder:
        spark.conf.set("spark.sql.shuffle.partitions", _shuffle_partitions(folder, SHAPES))


def _shuffle_partitions(folder: str, names: Iterable[str]) -> int:
    size = sum(file.stat().st_size for name in names for file in Path(table_path(folder, name)).rglob("*.parquet"))
    return min(1 + size // _BYTES_OF_A_PART, _MOST_PARTS)


def _snapshot(spark: SparkSession, folder: str, name: str) -> DataFrame | None:
    """Returns a table's files as they are now; None where they alone are not the table."""
    files = files_alone(table_path(folder, name))
    return None if files is None else spark.read.schema(SHAPES[name]).parquet(*files)


def table_versions(folder: str, names: Iterable[str]) -> tuple[int, ...]:
    """Returns the versions of tables, for it to be seen whether they have changed."""
    return tuple(deltalake.DeltaTable(table_path(folder, name)).version() for name in names)


def make_views(spark: SparkSession, names: Iterable[str], in_process: ViewsInProcess | None = None) -> None:
    """Makes views on the registered tables temporary views of the session.

    Those that explain an incident are computed from the tables as they are now, and have comments. They stand on each
    other, so that as text each would be planned many times over. To be called again to see in them rows that were
    added since.

    Args:
        names: as `views_named` gives them.
        in_process: computes those that explain an incident, in less than it takes Spark to plan them; without it Spark
            does, which takes tens of seconds but reads tables wherever they are.
    """
    for name in names:
        if name not in INCIDENT_VIEWS:
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {VIEWS[name]}")
            continue
        if in_process is None:
            frame = spark.sql(VIEWS[name]).localCheckpoint(eager=True)
        else:
            in_process.make(views_named(name))
            frame = spark.createDataFrame(in_process.arrow(name))
        _with_comments(name, frame).createOrReplaceTempView(name)


def _with_comments(name: str, frame: DataFrame) -> DataFrame:
    comments = {
        column: COLUMN_COMMENTS.get(f"{name}.{column}", COLUMN_COMMENTS.get(column)) for column in frame.columns
    }
    for column, comment in comments.items():
        if comment is not None:
            frame = frame.withMetadata(column, {"comment": comment})
    return frame


def register_log(spark: SparkSession, path: Path) -> None:
    """Makes what a request log holds now, with its history, the temporary view request_log.

    Raises:
        LogError: the log can't be read, or its history isn't where the log says.
    """
    request_log(spark, path).createOrReplaceTempView(REQUEST_LOG_TABLE)
