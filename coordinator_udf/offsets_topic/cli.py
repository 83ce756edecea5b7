"""``scripts/offsets``: export and import of Kafka's ``__consumer_offsets``."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from coordinator_udf.offsets_topic import import_export as store
from coordinator_udf.offsets_topic.codec import CodecError
from coordinator_udf.tables.staging import staging
from coordinator_udf.user_errors import UserError, status_of

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
    str, typer.Option("--tables", metavar="DIR|URI", help="The folder with the Delta tables (consumer_offsets, ...).")
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
        str | None,
        typer.Option(
            "--out", metavar="FILE|URI", help="The file to write, gzipped if it ends in .gz. Default: standard output."
        ),
    ] = None,
) -> None:
    """Write the records of one source to a file.

    They stand by partition and offset, with Kafka's own key and value bytes.
    """
    try:
        name = source if source is not None else store.only_source(tables)
        lines = store.export_lines(tables, name)
        if out is None:
            count = store.write_lines(lines, sys.stdout)
        else:
            with staging() as stage:
                count = store.write_file(lines, stage.new_file(out))
                stage.send()
    except (UserError, CodecError, OSError) as error:
        _fail(error)
    typer.echo(f"exported {count} records of source {name!r}", err=True)


@app.command(name="import")
def import_records(
    file: Annotated[str, typer.Argument(metavar="FILE|URI", help="JSON lines, gzipped if the name ends in .gz.")],
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
    name = source if source is not None else file.rpartition("/")[2]
    try:
        with staging() as stage:
            report = store.import_file(stage.fetch(file), tables, name)
    except (UserError, OSError) as error:
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
    raise typer.Exit(status_of(error)) from error


if __name__ == "__main__":
    app(prog_name="offsets")
