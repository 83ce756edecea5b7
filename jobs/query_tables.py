"""Opens Spark SQL on what a coordinator or a replay wrote: ``query_tables.py [--root DIR] [STATEMENT]``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from delta import configure_spark_with_delta_pip
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from coordinator_udf.sql import NoTables
from coordinator_udf.sql_shell import Shell


def main(
    statement: Annotated[str | None, typer.Argument(help="One SQL statement; without it, a shell.")] = None,
    root: Annotated[Path, typer.Option(help="The coordinator's root, or a replay's --out.")] = Path("data/sample"),
    tables: Annotated[str | None, typer.Option(help="The folder with the tables, if not under the root.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="How many rows of a result to show.")] = 1000,
    vertical: Annotated[bool, typer.Option(help="Show one line a column instead of one line a row.")] = False,
) -> None:
    """Ask in SQL: tables consumer_offsets, group_responses, ..., views groups, members, rebalances, ..."""
    folder = tables or str(root / "tables" if (root / "tables").is_dir() else root)
    shell = Shell(_session(), folder, max_rows=rows, vertical=vertical)
    try:
        if statement is None:
            shell.interact()
        else:
            shell.run(statement)
    except (NoTables, PySparkException) as error:
        typer.echo(f"sql: {error}", err=True)
        raise typer.Exit(1) from error


def _session() -> SparkSession:
    # The workers run the Python that runs this.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.Builder()
        .appName("muster-sql")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
    )
    return configure_spark_with_delta_pip(builder).getOrCreate()


if __name__ == "__main__":
    typer.run(main)
