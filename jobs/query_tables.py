"""Opens Spark SQL on what a coordinator or a replay wrote: ``query_tables.py [--root DIR] [STATEMENT]``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pyspark.errors import PySparkException

from coordinator_udf.spark_session import delta_session
from coordinator_udf.sql import NoTables
from coordinator_udf.sql_shell import Shell

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A table's list of files is small: no need to compute it in 50 tasks.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def main(
    statement: Annotated[str | None, typer.Argument(help="One SQL statement; without it, a shell.")] = None,
    root: Annotated[Path, typer.Option(help="The coordinator's root, or a replay's --out.")] = Path("data/sample"),
    tables: Annotated[str | None, typer.Option(help="The folder with the tables, if not under the root.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="How many rows of a result to show.")] = 1000,
    vertical: Annotated[bool, typer.Option(help="Show one line a column instead of one line a row.")] = False,
) -> None:
    """Ask in SQL: tables consumer_offsets, group_responses, ..., views groups, members, rebalances, ..."""
    folder = tables or str(root / "tables" if (root / "tables").is_dir() else root)
    spark = delta_session("muster-sql", SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    log = root / "request-log.db"
    shell = Shell(spark, folder, log if log.is_file() else None, max_rows=rows, vertical=vertical)
    try:
        if statement is None:
            shell.interact()
        else:
            shell.run(statement)
    except (NoTables, PySparkException) as error:
        typer.echo(f"sql: {error}", err=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
