"""The tables that can be asked, with their columns, and where they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import deltalake
from pyspark.sql.types import StructType

from coordinator_udf.tables.places import absolute, is_uri
from schemas.coordinator_log import COORDINATOR_LOG, COORDINATOR_LOG_TABLE
from schemas.explanations import EXPLANATIONS, EXPLANATIONS_TABLE, UNEXPLAINED, UNEXPLAINED_TABLE
from schemas.replay_differences import REPLAY_DIFFERENCES, REPLAY_DIFFERENCES_TABLE
from schemas.requests import REQUEST_LOG, REQUEST_LOG_TABLE
from schemas.simulation import MEMBER_EVENTS, MEMBER_EVENTS_TABLE, VIOLATIONS, VIOLATIONS_TABLE
from schemas.tables import TABLES
from schemas.views import VIEWS

#: The table of a simulation that is asked under another name, for a view has its own, and where it is.
_FOLDERS: Final = {"application_events": MEMBER_EVENTS_TABLE}

SHAPES: Final[dict[str, StructType]] = {
    **TABLES,
    REQUEST_LOG_TABLE: REQUEST_LOG,
    COORDINATOR_LOG_TABLE: COORDINATOR_LOG,
    REPLAY_DIFFERENCES_TABLE: REPLAY_DIFFERENCES,
    EXPLANATIONS_TABLE: EXPLANATIONS,
    UNEXPLAINED_TABLE: UNEXPLAINED,
    VIOLATIONS_TABLE: VIOLATIONS,
    **dict.fromkeys(_FOLDERS, MEMBER_EVENTS),
}

_WORD: Final = re.compile(r"\w+")
#: DuckDB and Hadoop take them for parts of a pattern.
_OF_PATTERNS: Final = frozenset("*?[]{}\\")
#: What a view's text reads from.
_READ: Final = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")


def table_path(folder: str, table: str) -> str:
    """Returns where a table is; in SQL a path must be a whole one."""
    return f"{absolute(folder)}/{_FOLDERS.get(table, table)}"


def files_alone(path: str) -> list[str] | None:
    """Returns the Parquet files of a Delta table's newest version, where reading them without its log gives its rows.

    None where it doesn't: the table has partition columns or deletion vectors, is at a URI, or its path has letters
    that a reader of files takes for a pattern; or there is none.
    """
    if is_uri(path) or not _OF_PATTERNS.isdisjoint(path) or not deltalake.DeltaTable.is_deltatable(path):
        return None
    table = deltalake.DeltaTable(path)
    features = table.protocol().reader_features or []
    if table.metadata().partition_columns or "deletionVectors" in features:
        return None
    # The log has paths as those of URIs.
    return [unquote(uri) for uri in table.file_uris()] or None


def log_beside(folder: str) -> Path | None:
    """Returns the embedded log of the coordinator that has its tables in a folder; None if there is none."""
    if is_uri(folder):
        return None
    tables = Path(folder)
    log = (tables.parent if tables.name == "tables" else tables) / "log"
    return log if log.is_file() else None


def views_named(text: str) -> list[str]:
    """Returns the views that a statement names, in letters of either case, and those that these use before them."""
    wanted: set[str] = set()
    named = set(_WORD.findall(text.lower()))
    while named:
        new = (named & VIEWS.keys()) - wanted
        wanted |= new
        named = {name for view in new for name in _READ.findall(VIEWS[view])}
    return [name for name in VIEWS if name in wanted]
