"""Queries on Delta tables by delta-rs' own engine.

Its Arrow datasets, the other way to read, take a column without statistics for one without values, and their threads
call Python, which aborts a process that ends just then.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder


def query(table: DeltaTable, sql: str) -> pa.RecordBatchReader:
    """Returns the answer to a query on a table, which is called ``rows`` in it."""
    return pa.RecordBatchReader.from_stream(QueryBuilder().register("rows", table).execute(sql))


def literal(text: str) -> str:
    """Returns a text as it stands in SQL."""
    return "'" + text.replace("'", "''") + "'"
