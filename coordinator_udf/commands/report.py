"""Tells what happened to consumer groups: ``muster report INPUT... -o incident.html``."""

from __future__ import annotations

import os
from datetime import tzinfo
from pathlib import Path
from typing import Annotated

import typer
from deltalake import DeltaTable
from pyspark.errors import PySparkException

from coordinator_udf import stopping
from coordinator_udf.commands.replay_options import DEFAULT_DOUBT_FROM, OneBroker, Overwrite, State, TimeZone
from coordinator_udf.forensics.facts import GroupFacts
from coordinator_udf.forensics.load import FACTS_VIEWS, load_facts
from coordinator_udf.forensics.report import ReportFormat, render
from coordinator_udf.forensics.sentences import counted
from coordinator_udf.forensics.what_if import read_what_if
from coordinator_udf.forensics.window import Window, parse_time
from coordinator_udf.replay.judge.report import SourceReport, doubts, notices, summary
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, check_request, needs_spark, replay
from coordinator_udf.replay.tasks.session import replay_session
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.registration import make_views, register
from coordinator_udf.sql.shapes import views_named
from coordinator_udf.tables.parquet_files import refuse_existing
from coordinator_udf.tables.pipes import STANDARD
from coordinator_udf.tables.places import is_directory, is_uri
from coordinator_udf.tables.staging import staging
from coordinator_udf.user_errors import InputError, UserError


def main(
    *,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Logs, as replay takes them, or one folder of tables; also at URIs; - is standard input.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE|URI", help="Where the report goes; - is standard output.")
    ] = "incident.html",
    form: Annotated[ReportFormat, typer.Option("--format", help="A page, Markdown, or a trace.")] = ReportFormat.HTML,
    group: Annotated[str | None, typer.Option(help="Of this group alone.")] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="From when on; in --time-zone unless it has an offset.")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Until when; as --from.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A broker's setting; repeatable.")
    ] = None,
    time_zone: TimeZone = "UTC",
    state: State = None,
    one_broker: OneBroker = False,
    what_if: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show what jobs/what_if.py --json predicted for other settings.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the tables here.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Tells from logs or tables what happened to consumer groups, as a page that needs no network."""
    try:
        predicted = {} if what_if is None else read_what_if(what_if)
        if keep is not None:
            refuse_existing(keep, overwrite, "--keep")
        with staging() as stage, stopping.temporary_directory("incident-") as scratch:
            page = None if output == STANDARD else stage.target(output)
            if page is not None:
                _refuse_impossible(page)
            paths = stage.fetch_all(inputs)
            folder = tables_folder(paths)
            out = keep or Path(scratch) / "tables"
            begin_with = None if state is None else stage.fetch(state)
            options = ReplayOptions.load(None, settings or (), None, time_zone, begin_with)
            window = _window(group, since, until, options.zone())
            request = ReplayRequest(tuple(paths), out, options, overwrite=overwrite, one_broker=one_broker)
            evidence: list[str] = []
            if folder is None:
                reports = replay_inputs(request)
                warnings = [f"WARNING: {doubt}" for doubt in doubts(reports, DEFAULT_DOUBT_FROM)]
                evidence = [*warnings, *summary(reports)]
                for line in (*warnings, *notices(reports)):
                    say(line)
            groups = facts_of(folder or str(out), window)
            _write(page, render(groups, form, evidence, predicted))
            stage.send()
            rebalances = sum(len(facts.rebalances) for facts in groups)
            told = f"{counted(len(groups), 'group')}, {counted(rebalances, 'rebalance')}"
            if page is None:
                say(told)
            else:
                typer.echo(f"{output}: {told}")
    except (UserError, PySparkException) as error:
        typer.echo(f"report: {error}", err=True)
        raise typer.Exit(2) from error


def _window(group: str | None, since: str | None, until: str | None, zone: tzinfo) -> Window:
    """Returns of what the report is to tell.

    Raises:
        InputError: a time is none, or the first is after the last.
    """
    begin = None if since is None else parse_time(since, "--from", zone)
    end = None if until is None else parse_time(until, "--to", zone, last=True)
    if begin is not None and end is not None and begin > end:
        raise InputError(f"--from {since} is after --to {until}; expected a time before it")
    return Window(group, begin, end)


def _refuse_impossible(page: Path) -> None:
    try:
        if page.is_dir():
            raise InputError(f"{page} is a directory; the report needs the name of a file")
        if not page.absolute().parent.is_dir():
            raise InputError(f"there is no directory {page.absolute().parent} for the report")
        is_writable = os.access(page if page.exists() else page.absolute().parent, os.W_OK)
    except OSError:
        is_writable = False
    if not is_writable:
        raise InputError(f"{page} can't be written: no permission")


def _write(page: Path | None, text: str) -> None:
    if page is None:
        typer.echo(text.encode(), nl=False)
        return
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{page} can't be written: {error.strerror}") from error


def tables_folder(inputs: list[Path]) -> str | None:
    """Returns the one folder of tables that is meant; None where logs are.

    Raises:
        InputError: folders of tables are named together with others.
    """
    folders = [path / "tables" if is_directory(path / "tables") else path for path in inputs if is_directory(path)]
    tables = [path for path in folders if DeltaTable.is_deltatable(str(path / "group_transitions"))]
    if tables and len(inputs) > 1:
        raise InputError(f"{tables[0]} holds tables; a report is of one folder of tables, or of logs")
    return str(tables[0]) if tables else None


def say(line: str) -> None:
    """Tells how far it is."""
    typer.echo(f"report: {line}", err=True)


def replay_inputs(request: ReplayRequest) -> list[SourceReport]:
    """Replays logs into tables; Spark is started only for logs that it shares among tasks.

    Raises:
        InputError, SettingsError: the inputs or settings make no sense.
    """
    checked = check_request(request)
    if not needs_spark(checked):
        return replay(None, request, say, checked)
    with replay_session() as spark:
        return replay(spark, request, say, checked)


def facts_of(folder: str, window: Window) -> list[GroupFacts]:
    """Returns the facts in the tables of a folder.

    Raises:
        InputError: the window holds nothing.
    """
    if is_uri(folder):
        with replay_session() as spark:
            register(spark, folder, views=())
            make_views(spark, views_named(" ".join(FACTS_VIEWS)))
            groups = load_facts(lambda text: [row.asDict() for row in spark.sql(text).collect()], window)
    else:
        views = ViewsInProcess(folder, group_id=window.group_id)
        views.make(views_named(" ".join(FACTS_VIEWS)))
        groups = load_facts(views.ask, window)
    if not groups:
        raise InputError("nothing is told of any group in these inputs; see --group, --from and --to")
    return groups
