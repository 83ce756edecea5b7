"""``scripts/offsets``: export and import of Kafka's ``__consumer_offsets``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from coordinator_udf.offsets_topic import import_export as store
from coordinator_udf.offsets_topic.codec import CodecError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Kafka's __consumer_offsets, byte for byte, to and from the Delta table consumer_offsets.\n\n"
    "A file is JSON lines, one a record: partition, offset, timestamp (ms), batchBase, leaderEpoch, txn, producerId, "
    "producerEpoch, control (COMMIT or ABORT, in transaction markers only), keyType, key and value (base64, a null "
    "value is a tombstone). It is gzipped if its name ends in .gz. What was imported is exported as the same lines.",
)

Tables = Annotated[
    Path, typer.Option("--tables", metavar="DIR", help="The directory with the Delta tables (consumer_offsets, ...).")
]


@app.command(name="export")
def export_records(
    tables: Tables,
    source: Annotated[
        str | None,
        typer.Option(
            help="The source whose records to write (the live coordinator is 'live'). Needed if there are several."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="The file to write, gzipped if it ends in .gz. Default: standard output."
        ),
    ] = None,
) -> None:
    """Write the records of one source, by partition and offset, with Kafka's own key and value bytes."""
    try:
        name = source if source is not None else store.only_source(tables)
        lines = store.export_lines(tables, name)
        count = store.write_lines(lines, sys.stdout) if out is None else store.write_file(lines, out)
    except (store.StoreError, CodecError, OSError) as error:
        _fail(error)
    typer.echo(f"exported {count} records of source {name!r}", err=True)


@app.command(name="import")
def import_records(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines, gzipped if the name ends in .gz.")],
    tables: Tables,
    source: Annotated[
        str | None,
        typer.Option(help="The source to file the records under; must be new. Default: the file's name."),
    ] = None,
) -> None:
    """Append a file's records to consumer_offsets, in one commit.

    Lines that are no record that Kafka 4.3.1 knows go to the table rejected_requests as they are, with the reason, and
    are exported again in their places.
    """
    name = source if source is not None else file.name
    try:
        report = store.import_file(file, tables, name)
    except (store.StoreError, OSError) as error:
        _fail(error)
    for record_type, count in sorted(report.records.items()):
        typer.echo(f"{count:>10}  {record_type}")
    typer.echo(
        f"imported {report.records.total()} records as source {name!r}, {report.tombstones} of them tombstones; "
        f"{report.kept_bytes} needed their bytes kept beside the columns"
    )
    if report.rejected:
        typer.echo(f"{len(report.rejected)} lines went to rejected_requests:", err=True)
        for number, reason in report.rejected[:10]:
            typer.echo(f"  line {number}: {reason}", err=True)
        if len(report.rejected) > 10:
            typer.echo(f"  ... and {len(report.rejected) - 10} more", err=True)


def _fail(error: Exception) -> NoReturn:
    typer.echo(f"offsets: {error}", err=True)
    raise typer.Exit(1) from error


if __name__ == "__main__":
    app(prog_name="offsets")
