"""Small tables made by hand and written as real Delta tables, with the views on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from coordinator_udf.sql.registration import make_views, register
from coordinator_udf.sql.shapes import views_named
from schemas.requests import REQUEST_LOG_TABLE, request_log_arrow
from schemas.tables import table_arrow

Rows = list[Mapping[str, Any]]
Ask = Callable[[str], list[dict[str, Any]]]


def write_table(folder: Path, name: str, rows: Rows) -> None:
    """Writes rows, given by the columns that matter, as a Delta table."""
    schema = request_log_arrow() if name == REQUEST_LOG_TABLE else table_arrow(name)
    unknown = {column for row in rows for column in row} - set(schema.names)
    assert not unknown, f"{name} has no columns {unknown}"
    full = [{"source": "live", "partition": 0, **row} for row in rows]
    columns = [pa.array([row.get(field.name) for row in full], field.type) for field in schema]
    write_deltalake(str(folder / name), pa.table(columns, schema=schema), mode="append")


@pytest.fixture
def ask(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Ask]:
    """Writes the tables that are given, registers all, and gives a function from SQL to rows."""

    def make(**tables: Rows) -> Ask:
        for name, rows in tables.items():
            write_table(tmp_path, name, rows)
        register(spark, str(tmp_path))

        def query(text: str) -> list[dict[str, Any]]:
            make_views(spark, views_named(text))
            return [row.asDict(recursive=True) for row in spark.sql(text).collect()]

        return query

    return make
