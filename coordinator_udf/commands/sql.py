"""Opens Spark SQL on what a coordinator or a replay wrote: ``muster sql [--root DIR] [STATEMENTS]``."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from coordinator_udf import stopping
from coordinator_udf.commands.gateway_options import KafkaConfig
from coordinator_udf.commands.sql_words import STATEMENTS, check_words, words_given
from coordinator_udf.log.kafka.place import is_kafka
from coordinator_udf.log.kafka.security import read_kafka_security
from coordinator_udf.replay.inputs.kafka_topic import topics_as_tables
from coordinator_udf.sql import endpoint
from coordinator_udf.sql.ddl import install, statements_for
from coordinator_udf.sql.local_shell import LocalShell
from coordinator_udf.sql.registration import NoTables, fit_to_size
from coordinator_udf.sql.results import TABLE_ROWS, OutputFormat, Results
from coordinator_udf.sql.shapes import log_beside
from coordinator_udf.sql.shell import Shell, Statements, in_a_line
from coordinator_udf.streaming.session import read_spark_conf
from coordinator_udf.tables.places import is_uri
from coordinator_udf.tables.spark_session import delta_session
from coordinator_udf.user_errors import InputError, UserError, status_of
from schemas.tables import TABLES

#: What the endpoint calls the schema of its tables.
SCHEMA = "muster"
#: A session that keeps what it is told to create where others find it.
METASTORE = {
    "spark.sql.catalogImplementation": "hive",
    # Spark keeps the plan of each statement as text; that of views on views on views is larger than a heap.
    "spark.sql.maxPlanStringLength": "4096",
}
_WAREHOUSE = "spark.sql.warehouse.dir"
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Most tables are small and each plan runs once: to compile and to adapt it takes longer than to run it.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def main(
    context: typer.Context,
    statement: Annotated[
        str | None, typer.Argument(metavar=STATEMENTS, help="SQL, with ; between statements; without it, a shell.")
    ] = None,
    *,
    root: Annotated[Path, typer.Option(help="The coordinator's root, or a replay's --out.")] = Path("data/sample"),
    tables: Annotated[str | None, typer.Option(help="The folder with the tables, if not under the root.")] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Show so many rows of a result at most; without it {TABLE_ROWS} of a table, else all."
        ),
    ] = None,
    form: Annotated[OutputFormat, typer.Option("--format", help="How results are written.")] = OutputFormat.TABLE,
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="Run the statements in it.")] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Run all in Spark, also what needs none.")] = False,
    is_ddl: Annotated[
        bool,
        typer.Option(
            "--ddl",
            help="Print the statements that make the tables and views those of a catalog: --ddl CATALOG.SCHEMA; "
            "without a name, of the schema in which they are run.",
        ),
    ] = False,
    is_installed: Annotated[
        bool, typer.Option("--install", help="Run the statements of --ddl, in the metastore that --spark-conf names.")
    ] = False,
    spark_conf: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Spark's settings for --install, as conf/spark.conf.")
    ] = None,
    serve: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Offer tables and views to notebooks by Spark Connect, until stopped."),
    ] = None,
    log: Annotated[
        str | None, typer.Option(metavar="kafka://...", help="The topic that is the request log, for request_log.")
    ] = None,
    kafka_config: KafkaConfig = None,
    vertical: Annotated[bool, typer.Option(help="Show one line a column instead of one line a row.")] = False,
) -> None:
    """Ask in SQL: tables consumer_offsets, group_responses, ..., views groups, members, rebalances, ..."""
    try:
        check_words(words_given(context), statement, serve, is_table=form is OutputFormat.TABLE)
        if log is not None and not is_kafka(log):
            raise InputError(f"--log is {log}, expected kafka://HOST:PORT,.../TOPIC; the embedded one is under --root")
    except InputError as error:
        raise _refused(error) from error
    folder = tables or str(root / "tables" if (root / "tables").is_dir() else root)
    try:
        look_for_tables(folder)
        text = statements_in(file) if file is not None else statement
        if serve is not None:
            serve_at(folder, endpoint.Address.parse(serve))
            return
        if is_installed and statement is not None and spark_conf is not None:
            made = installed(folder, statement, spark_conf)
            typer.echo(f"{statement}: {len(made)} tables and views: {', '.join(made)}")
            return
    except (UserError, OSError, PySparkException, Py4JError) as error:
        raise _refused(error) from error
    if is_ddl:
        for each in statements_for(folder, statement):
            typer.echo(each if each.startswith("--") else f"{each};")
        return
    results = Results(form, rows, vertical)
    try:
        with _request_log(folder, log, kafka_config) as at:
            if spark or is_uri(folder):
                _ask(Shell(start_spark(folder), folder, results, at), text)
            else:
                _ask(LocalShell(folder, at, lambda: start_spark(folder), results), text)
    except (UserError, PySparkException, Py4JError) as error:
        raise _refused(error) from error


def _ask(shell: Statements, text: str | None) -> None:
    """Runs statements; without any, those that are typed."""
    if text is not None:
        shell.run_all(text)
    elif not shell.interact() and not sys.stdin.isatty():
        raise typer.Exit(1)


def _refused(error: Exception) -> typer.Exit:
    """Tells of what was asked in vain, and returns how to end then."""
    typer.echo(f"sql: {in_a_line(error)}", err=True)
    return typer.Exit(status_of(error))


@contextmanager
def _request_log(folder: str, log: str | None, kafka_config: Path | None) -> Iterator[Path | None]:
    """Finds the request log: the embedded one, or a table with what the topic holds now; None without either."""
    if log is None:
        yield log_beside(folder)
        return
    with topics_as_tables([log], read_kafka_security(kafka_config)) as (paths, _):
        yield paths[0]


def serve_at(folder: str, address: endpoint.Address) -> None:
    """Offers the tables and views until it is interrupted."""
    refuse_busy(address)
    with stopping.temporary_directory("muster-sql-") as scratch:
        warehouse = {_WAREHOUSE: scratch}
        spark = delta_session("muster-sql", SETTINGS | endpoint.connect_settings(address) | warehouse)
        quiet(spark)
        with endpoint.published(spark, folder, SCHEMA) as names:
            stopped = stopped_by_signals()
            # Whoever reads this may stop the server at once.
            typer.echo(f"Spark Connect: sc://{address.host}:{address.port}, schema {SCHEMA}, {len(names)} tables")
            sys.stdout.flush()
            while not stopped.wait(1):
                pass


def installed(folder: str, schema: str, spark_conf: Path) -> list[str]:
    """Makes the tables of a folder, and the views on them, those of a schema of a metastore; their names.

    Raises:
        InputError: the metastore's warehouse isn't named.
        SparkConfError: the settings can't be read.
        PySparkException: the metastore can't be reached, or refuses a statement.
    """
    told = read_spark_conf(spark_conf)
    if _WAREHOUSE not in told:
        raise InputError(f"{spark_conf} doesn't set {_WAREHOUSE}, where the metastore's schemas have their place")
    spark = delta_session("muster-sql", {**SETTINGS, **METASTORE, **told})
    # What a metastore refuses is told by the statement that fails, not by each of its tries.
    spark.sparkContext.setLogLevel("OFF")
    return install(spark, folder, schema, lambda name: typer.echo(f"sql: {schema}.{name}", err=True))


def stopped_by_signals() -> threading.Event:
    """Returns an event that SIGINT or SIGTERM sets from now on."""
    stopped = threading.Event()
    stopping.call_instead(stopped.set)
    return stopped


def refuse_busy(address: endpoint.Address) -> None:
    """Sees that a port is free, before Spark is started.

    Raises:
        InputError: it isn't, or there is no such address here.
    """
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(address)
        except OSError as error:
            raise InputError(f"{address.host}:{address.port} can't be listened on: {error.strerror}") from error


def statements_in(file: Path) -> str:
    """Returns the statements in a file.

    Raises:
        InputError: it can't be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} can't be read: it is not UTF-8") from error


def start_spark(folder: str) -> SparkSession:
    """Returns a session that is as quick as one can be on small tables."""
    spark = delta_session("muster-sql", SETTINGS)
    quiet(spark)
    fit_to_size(spark, folder)
    return spark


def look_for_tables(folder: str) -> None:
    """Looks whether there are tables, before Spark is started to ask them.

    Raises:
        NoTables: there is none in a folder of this machine.
    """
    if "://" not in folder and not any((Path(folder) / name / "_delta_log").is_dir() for name in TABLES):
        raise NoTables(f"no table in {folder}: expected Delta tables such as {folder}/{next(iter(TABLES))}")


def quiet(spark: SparkSession) -> None:
    """Leaves it to the shell to tell what went wrong with a statement."""
    spark.sparkContext.setLogLevel("ERROR")
    # PySpark logs each refused statement with the JVM's stack trace, all on one line.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
