"""Opens Spark SQL on what a coordinator or a replay wrote: ``query_tables.py [--root DIR] [STATEMENT]``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from coordinator_udf.sql.shell import Shell
from coordinator_udf.tables.spark_session import delta_session
from coordinator_udf.user_errors import UserError

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Most tables are small and each plan runs once: to compile and to adapt it takes longer than to run it.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
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
    quiet(spark)
    log = root / "log"
    shell = Shell(spark, folder, log if log.is_file() else None, max_rows=rows, vertical=vertical)
    try:
        if statement is None:
            shell.interact()
        else:
            shell.run(statement)
    except (UserError, PySparkException) as error:
        typer.echo(f"sql: {error}", err=True)
        raise typer.Exit(1) from error


def quiet(spark: SparkSession) -> None:
    """Leaves it to the shell to tell what went wrong with a statement."""
    spark.sparkContext.setLogLevel("ERROR")
    # PySpark logs each refused statement with the JVM's stack trace, all on one line.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


if __name__ == "__main__":
    typer.run(main)
