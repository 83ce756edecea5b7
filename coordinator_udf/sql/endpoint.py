"""An endpoint for notebooks: Spark Connect on the tables of a folder.

Spark plans the views that explain an incident for seconds at each question, so that they are computed once, in this
process, and offered as tables. So is what only a function in Python can read; a catalog can't hold one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from coordinator_udf import stopping
from coordinator_udf.sql.ddl import create_table, quoted
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.shapes import SHAPES, log_beside, table_path
from coordinator_udf.user_errors import InputError
from schemas.view_comments import COLUMN_COMMENTS
from schemas.views import VIEWS

_HIGHEST_PORT: Final = 65535


class Address(NamedTuple):
    """Where an endpoint listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads HOST:PORT.

        Raises:
            InputError: it is none.
        """
        host, _, port = text.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= _HIGHEST_PORT:
            raise InputError(f"{text!r} is no address; expected HOST:PORT, such as 127.0.0.1:15002")
        return cls(host, int(port))


def connect_settings(address: Address) -> dict[str, str]:
    """Returns the settings with which a session is a Spark Connect server, too."""
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": address.host,
        "spark.connect.grpc.binding.port": str(address.port),
    }


@contextmanager
def published(spark: SparkSession, folder: str, schema: str) -> Iterator[list[str]]:
    """Offers the tables of a folder, and all views on them as they are now, as tables of a schema; their names."""
    with stopping.temporary_directory("muster-views-") as scratch:
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        names = []
        for name, shape in SHAPES.items():
            if DeltaTable.is_deltatable(table_path(folder, name)):
                spark.sql(create_table(f"{schema}.{name}", folder, name, shape))
                names.append(name)
        views = ViewsInProcess(folder, log_beside(folder))
        views.make(VIEWS)
        for name in VIEWS:
            _publish(spark, views, Path(scratch), schema, name)
            names.append(name)
        views.close()
        yield names


def _publish(spark: SparkSession, views: ViewsInProcess, scratch: Path, schema: str, name: str) -> None:
    rows = views.arrow(name)
    place = scratch / name
    place.mkdir()
    pq.write_table(rows, place / "rows.parquet", coerce_timestamps="us")
    columns = []
    for field in rows.schema:
        comment = COLUMN_COMMENTS.get(f"{name}.{field.name}", COLUMN_COMMENTS.get(field.name))
        said = "" if comment is None else f" COMMENT '{quoted(comment)}'"
        columns.append(f"`{field.name}` {from_arrow_type(field.type).simpleString()}{said}")
    spark.sql(f"DROP TABLE IF EXISTS {schema}.{name}")
    spark.sql(f"CREATE TABLE {schema}.{name} ({', '.join(columns)}) USING parquet LOCATION '{quoted(str(place))}'")
