"""Compacts the table consumer_offsets: keeps the newest record of each key, drops old tombstones, packs small files.

Safe beside a running coordinator. Run it from time to time: ``muster compact --tables DIR``.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer
from deltalake import DeltaTable

from coordinator_udf.offsets_topic.compaction import Compaction, Removed, compact, pack_table
from coordinator_udf.tables.places import absolute
from coordinator_udf.tables.spark_session import delta_session
from coordinator_udf.user_errors import InputError, telling_errors

DAY_MS: Final = 24 * 60 * 60 * 1000

#: A coordinator keeps Delta's own log short: one task reads it.
SETTINGS: Final = {"spark.databricks.delta.snapshotPartitions": "1", "spark.ui.showConsoleProgress": "false"}


def main(
    *,
    tables: Annotated[
        str, typer.Option("--tables", metavar="DIR", help="The folder with the Delta tables, path or URI.")
    ],
    source: Annotated[str | None, typer.Option(help="Only this source; by default each, on its own.")] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Only this partition; by default each, on its own.")
    ] = None,
    delete_retention_ms: Annotated[
        int,
        typer.Option(
            min=0, help="Keep tombstones and transaction markers this long, in log time (delete.retention.ms)."
        ),
    ] = DAY_MS,
    min_lag_ms: Annotated[
        int,
        typer.Option(
            min=0,
            help="Leave records alone until they are this old, in log time (min.compaction.lag.ms). Longer than "
            "what a coordinator that restarts may have to run again: its answers may need superseded records.",
        ),
    ] = DAY_MS // 24,
    pack: Annotated[bool, typer.Option(help="Also rewrite small files as large ones.")] = True,
    attempts: Annotated[int, typer.Option(min=1, help="How often to try while other commits get in between.")] = 5,
) -> None:
    """Keep the newest record of each key of consumer_offsets and drop old tombstones.

    Commits of open transactions stay, and so do the markers that the commits which stay depend on. Log time is the
    newest record's time of each source. What the views answer doesn't change. Old files go with Delta's VACUUM.
    """
    table = f"{absolute(tables)}/consumer_offsets"
    wanted = Compaction(
        source=source, partition=partition, delete_retention_ms=delete_retention_ms, min_lag_ms=min_lag_ms
    )
    with telling_errors("compact"):
        if not DeltaTable.is_deltatable(table):
            raise InputError(f"{table} is no Delta table; --tables expects the folder that holds it")
        _say("starting Spark")
        spark = delta_session("muster-compact-offsets", SETTINGS)
        # It would say that it shortens what it doesn't show.
        spark.sparkContext.setLogLevel("ERROR")
        _say(f"looking in {table} for what newer records supersede")
        removed = compact(spark, table, wanted, attempts=attempts)
    _tell(removed)
    if pack:
        _say("packing small files")
        with telling_errors("compact"):
            gone, come = pack_table(table, attempts=attempts)
        typer.echo(f"packed {gone} files into {come}")


def _say(line: str) -> None:
    """Tells how far it is."""
    typer.echo(f"compact: {line}", err=True)


def _tell(removed: list[Removed]) -> None:
    if not removed:
        typer.echo("no records old enough to look at")
    for shard in removed:
        typer.echo(
            f"source {shard.source!r} partition {shard.partition}: {shard.total} of {shard.rows} records below offset "
            f"{shard.watermark} removed ({shard.superseded} superseded, {shard.tombstones} tombstones, "
            f"{shard.aborted} of aborted transactions, {shard.markers} markers)"
        )
    typer.echo(f"removed {sum(shard.total for shard in removed)} of {sum(shard.rows for shard in removed)} records")
