"""The tables of a coordinator as tables of a Spark session, and the views on them (schemas.views)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import deltalake
from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from coordinator_udf.log.dataframe import request_log
from coordinator_udf.protocol.consumer_protocol import (
    MalformedConsumerProtocol,
    decode_assignment,
    decode_subscription_topics,
)
from coordinator_udf.tables.places import absolute
from coordinator_udf.user_errors import UserError
from schemas.coordinator_log import COORDINATOR_LOG, COORDINATOR_LOG_TABLE
from schemas.explanations import EXPLANATIONS, EXPLANATIONS_TABLE, UNEXPLAINED, UNEXPLAINED_TABLE
from schemas.replay_differences import REPLAY_DIFFERENCES, REPLAY_DIFFERENCES_TABLE
from schemas.requests import REQUEST_LOG, REQUEST_LOG_TABLE
from schemas.tables import TABLES
from schemas.view_comments import COLUMN_COMMENTS
from schemas.views import INCIDENT_VIEWS, READ_CONSUMER_PROTOCOL, VIEWS

#: The views that every session has: what a running coordinator is asked, and it goes on writing.
_AS_TEXT: Final = [name for name in VIEWS if name not in INCIDENT_VIEWS or name == "rebalances"]
#: As much of the tables' files one task groups and joins.
_BYTES_OF_A_PART: Final = 32 << 20
_MOST_PARTS: Final = 64
_WORD: Final = re.compile(r"\w+")
#: What a view's text reads from.
_READ: Final = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")
_SHAPES: Final = {
    **TABLES,
    REQUEST_LOG_TABLE: REQUEST_LOG,
    COORDINATOR_LOG_TABLE: COORDINATOR_LOG,
    REPLAY_DIFFERENCES_TABLE: REPLAY_DIFFERENCES,
    EXPLANATIONS_TABLE: EXPLANATIONS,
    UNEXPLAINED_TABLE: UNEXPLAINED,
}

_EMBEDDED: Final = StructType(
    [
        StructField("topics", ArrayType(StringType()), True),
        StructField("partitions", MapType(StringType(), ArrayType(IntegerType())), True),
        StructField("error", StringType(), True),
    ]
)


class NoTables(UserError):
    """There is nothing to ask about where the tables should be."""


def tables_in(spark: SparkSession, folder: str) -> tuple[str, ...]:
    """The names of the tables that are in a folder.

    Raises:
        NoTables: there is none at all.
    """
    if "://" in folder:
        found = tuple(name for name in _SHAPES if DeltaTable.isDeltaTable(spark, _path(folder, name)))
    else:
        found = tuple(name for name in _SHAPES if deltalake.DeltaTable.is_deltatable(_path(folder, name)))
    if not found:
        raise NoTables(f"no table in {folder}: expected Delta tables such as {folder}/{next(iter(_SHAPES))}")
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
    for name, shape in _SHAPES.items():
        snapshot = _snapshot(spark, folder, name) if as_they_are and name in found else None
        if snapshot is not None:
            snapshot.createOrReplaceTempView(name)
        elif name in found:
            path = _path(folder, name).replace("`", "``")
            # As text, not as a DataFrame: so every query sees the table's newest version.
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT * FROM delta.`{path}`")
        else:
            nulls = ", ".join(f"CAST(NULL AS {field.dataType.simpleString()}) AS {field.name}" for field in shape)
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT {nulls} WHERE false")
    if log is not None:
        register_log(spark, log)
    if not spark.catalog.functionExists(READ_CONSUMER_PROTOCOL):
        spark.udf.register(READ_CONSUMER_PROTOCOL, read_consumer_protocol, _EMBEDDED)
    for name in _AS_TEXT if views is None else ():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {VIEWS[name]}")
    make_views(spark, views or ())
    return found


def fit_to_size(spark: SparkSession, folder: str) -> None:
    """Lets the session group and join in as many parts as tables on this machine need.

    For small ones a second part costs more than it saves.
    """
    if "://" not in folder:
        spark.conf.set("spark.sql.shuffle.partitions", _shuffle_partitions(folder, _SHAPES))


def _shuffle_partitions(folder: str, names: Iterable[str]) -> int:
    size = sum(file.stat().st_size for name in names for file in Path(_path(folder, name)).rglob("*.parquet"))
    return min(1 + size // _BYTES_OF_A_PART, _MOST_PARTS)


def _snapshot(spark: SparkSession, folder: str, name: str) -> DataFrame | None:
    """A table's files as they are now; None where they alone are not the table."""
    if "://" in folder:
        return None
    table = deltalake.DeltaTable(_path(folder, name))
    features = table.protocol().reader_features or []
    files = table.file_uris()
    if table.metadata().partition_columns or "deletionVectors" in features or not files:
        return None
    return spark.read.schema(_SHAPES[name]).parquet(*files)


def table_versions(folder: str, names: Iterable[str]) -> tuple[int, ...]:
    """The versions of tables, for it to be seen whether they have changed."""
    return tuple(deltalake.DeltaTable(_path(folder, name)).version() for name in names)


def views_named(text: str) -> list[str]:
    """The views that a statement names and those that they stand on, each after those."""
    wanted: set[str] = set()
    named = set(_WORD.findall(text))
    while named:
        new = (named & VIEWS.keys()) - wanted
        wanted |= new
        named = {name for view in new for name in _READ.findall(VIEWS[view])}
    return [name for name in VIEWS if name in wanted]


def make_views(spark: SparkSession, names: Iterable[str]) -> None:
    """Makes views on the registered tables temporary views of the session.

    Those that explain an incident are computed from the tables as they are now, and have comments. They stand on each
    other, so that as text each would be planned many times over: this takes seconds for what takes minutes then. To be
    called again to see in them rows that were added since.

    Args:
        names: as `views_named` gives them.
    """
    for name in names:
        if name in INCIDENT_VIEWS:
            _compute(spark, name)
        else:
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {VIEWS[name]}")


def _compute(spark: SparkSession, name: str) -> None:
    frame = spark.sql(VIEWS[name])
    for column in frame.columns:
        comment = COLUMN_COMMENTS.get(f"{name}.{column}", COLUMN_COMMENTS.get(column))
        if comment is not None:
            frame = frame.withMetadata(column, {"comment": comment})
    frame.localCheckpoint(eager=True).createOrReplaceTempView(name)


def _path(folder: str, table: str) -> str:
    # In SQL a path must be a whole one.
    return f"{absolute(folder)}/{table}"


def register_log(spark: SparkSession, path: Path) -> None:
    """Makes what a request log holds now, with its history, the temporary view request_log.

    Raises:
        LogError: the log can't be read, or its history isn't where the log says.
    """
    request_log(spark, path).createOrReplaceTempView(REQUEST_LOG_TABLE)


def read_consumer_protocol(
    subscription: bytes | None, assignment: bytes | None
) -> tuple[list[str] | None, dict[str, list[int]] | None, str | None]:
    """The topics of a subscription, the partitions of an assignment, and why one of them could not be read."""
    topics: list[str] | None = None
    partitions: dict[str, list[int]] | None = None
    try:
        if subscription is not None:
            topics = list(decode_subscription_topics(bytes(subscription)))
        if assignment is not None:
            partitions = decode_assignment(bytes(assignment)).partitions
    except MalformedConsumerProtocol as error:
        return topics, partitions, str(error)
    return topics, partitions, None
