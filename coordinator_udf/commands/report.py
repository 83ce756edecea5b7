"""Tells what happened to consumer groups: ``muster report INPUT... -o incident.html``."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer
from deltalake import DeltaTable
from pyspark.errors import PySparkException

from coordinator_udf import stopping
from coordinator_udf.commands.replay_options import DEFAULT_DOUBT_FROM, DoubtFrom, OneBroker, Overwrite, State, TimeZone
from coordinator_udf.forensics.absent import no_group, why_nothing
from coordinator_udf.forensics.facts import GroupFacts
from coordinator_udf.forensics.load import FACTS_VIEWS, load_facts
from coordinator_udf.forensics.report import ReportFormat, render
from coordinator_udf.forensics.sentences import counted
from coordinator_udf.forensics.what_if import read_what_if
from coordinator_udf.forensics.window import Window, parse_time
from coordinator_udf.replay.inputs.plan import SourceInput
from coordinator_udf.replay.judge.report import SourceReport, doubts, misfits, notices, status, summary
from coordinator_udf.replay.options import ReplayOptions
from coordinator_udf.replay.tasks.driver import ReplayRequest, check_request, replay
from coordinator_udf.replay.tasks.session import replay_session, session_if_needed
from coordinator_udf.sql.in_process import ViewsInProcess
from coordinator_udf.sql.registration import make_views, register
from coordinator_udf.sql.shapes import log_beside, views_named
from coordinator_udf.tables.parquet_files import refuse_existing
from coordinator_udf.tables.pipes import STANDARD
from coordinator_udf.tables.places import is_directory, is_uri
from coordinator_udf.tables.staging import staging
from coordinator_udf.user_errors import InputError, telling_errors

#: What a report is called where nobody names it.
_NAMES: Final = {
    ReportFormat.HTML: "incident.html",
    ReportFormat.MARKDOWN: "incident.md",
    ReportFormat.PERFETTO: "incident.json",
}
#: What a report is, by the end of its name, where nobody says it.
_FORMATS: Final = {PurePath(name).suffix: form for form, name in _NAMES.items()}


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
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|URI",
            help="Where the report goes: by default incident.html, .md or .json; - is standard output.",
        ),
    ] = None,
    form: Annotated[
        ReportFormat | None,
        typer.Option(
            "--format", help="A page, Markdown, or a trace: by default as --output is named (.md, .json), else a page."
        ),
    ] = None,
    group: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Of this group alone; repeatable.")] = None,
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
        Path | None, typer.Option(metavar="FILE", help="Show what muster what-if --json predicted for other settings.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the tables here.")] = None,
    overwrite: Overwrite = False,
    doubt_from: DoubtFrom = DEFAULT_DOUBT_FROM,
) -> None:
    """Tells from logs or tables what happened to consumer groups, as a page that needs no network.

    Ends with status 1 if an input couldn't be read, 2 for a wrong command, 3 if one is doubtful (--doubt-from): the
    report is of the others, and says so.
    """
    with telling_errors("report", PySparkException):
        options = ReplayOptions.load(None, settings or (), None, time_zone)
        group_ids = tuple(dict.fromkeys(group)) if group else None
        window = _window(group_ids, since, until, options.zone())
        predicted = {} if what_if is None else read_what_if(what_if)
        if keep is not None:
            refuse_existing(keep, overwrite, "--keep")
        form = form or _FORMATS.get(PurePath(output or "").suffix.lower(), ReportFormat.HTML)
        output = output or _NAMES[form]
        with staging() as stage, stopping.temporary_directory("incident-") as scratch:
            page = None if output == STANDARD else stage.target(output)
            if page is not None:
                _refuse_impossible(page)
            paths = stage.fetch_all(inputs)
            folder = tables_folder(paths)
            evidence = Evidence()
            if folder is None:
                options = msgspec.structs.replace(options, state=tuple(stage.fetch_all(state or ())))
                out = keep or Path(scratch) / "tables"
                request = ReplayRequest(tuple(paths), out, options, overwrite=overwrite, one_broker=one_broker)
                evidence = _read(request, doubt_from, group_ids)
            else:
                is_zone_needed = since is not None or until is not None
                given = {"--set": settings, "--state": state, "--one-broker": one_broker, "--keep": keep,
                         "--overwrite": overwrite, "--doubt-from": doubt_from != DEFAULT_DOUBT_FROM,
                         "--time-zone": time_zone != "UTC" and not is_zone_needed}  # fmt: skip
                _refuse_unused(folder, [option for option, value in given.items() if value])
            groups = facts_of(folder or str(out), window)
            _write(page, render(groups, form, evidence.lines, predicted, evidence.warnings))
            stage.send()
            _end(page, output, groups)
    if evidence.status:
        raise typer.Exit(evidence.status)


class Evidence(NamedTuple):
    """What is said of the logs that were read, and the status that the command ends with for them.

    What is wrong with them is said at the beginning of the report, too.
    """

    lines: Sequence[str] = ()
    warnings: Sequence[str] = ()
    status: int = 0


def _read(request: ReplayRequest, doubt_from: float, group_ids: tuple[str, ...] | None) -> Evidence:
    """Replays logs into tables, and says what is wrong with them."""
    reports = replay_inputs(request, group_ids or ())
    warnings = [f"WARNING: {text}" for text in (*doubts(reports, doubt_from), *misfits(reports))]
    for line in (*warnings, *notices(reports)):
        say(line)
    return Evidence([*warnings, *summary(reports)], warnings, status(reports, doubt_from))


def _refuse_unused(folder: str, options: Sequence[str]) -> None:
    if options:
        told = f"{', '.join(options)} can't apply to the tables in {folder}"
        raise InputError(f"{told}: leave out what is for reading logs, or name the logs")


def _end(page: Path | None, output: str, groups: Sequence[GroupFacts]) -> None:
    rebalances = sum(len(facts.rebalances) for facts in groups)
    told = f"{counted(len(groups), 'group')}, {counted(rebalances, 'rebalance')}"
    if page is None:
        say(told)
    else:
        typer.echo(f"{output}: {told}")


def _window(group_ids: tuple[str, ...] | None, since: str | None, until: str | None, zone: tzinfo) -> Window:
    """Returns of what the report is to tell.

    Raises:
        InputError: a time is none, or the first isn't before the last.
    """
    begin = None if since is None else parse_time(since, "--from", zone)
    end = None if until is None else parse_time(until, "--to", zone, last=True)
    if begin is not None and end is not None and begin >= end:
        raise InputError(f"--from is {since}, expected a time before --to, which is {until}")
    return Window(group_ids, begin, end)


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


def replay_inputs(request: ReplayRequest, group_ids: Sequence[str] = ()) -> list[SourceReport]:
    """Replays logs into tables; Spark is started only for logs that it shares among tasks.

    Args:
        group_ids: whose requests are looked for; where none of the logs names one of them none is replayed.

    Raises:
        InputError, SettingsError: the inputs, a group or the settings make no sense.
    """
    checked = check_request(request)
    if not request.options.state:
        for group_id in group_ids:
            _refuse_absent(group_id, checked)
    with session_if_needed(checked) as spark:
        return replay(spark, request, say, checked)


def _refuse_absent(group: str, sources: Sequence[SourceInput]) -> None:
    named = [source.groups for source in sources if source.failure is None]
    found = sorted(frozenset().union(*(groups for groups in named if groups is not None)))
    # JSON writes some letters otherwise.
    is_plain = json.dumps(group, ensure_ascii=False) == f'"{group}"'
    if is_plain and found and None not in named and group not in found:
        raise InputError(no_group(group, found))


def facts_of(folder: str, window: Window) -> list[GroupFacts]:
    """Returns the facts in the tables of a folder.

    Raises:
        InputError: the window holds nothing, or nothing of one of its groups.
    """
    if is_uri(folder):
        with replay_session() as spark:
            register(spark, folder, views=())
            make_views(spark, views_named(" ".join(FACTS_VIEWS)))

            def ask(text: str) -> list[dict[str, Any]]:
                return [row.asDict() for row in spark.sql(text).collect()]

            groups = load_facts(ask, window)
            untold = _untold(groups, window)
            why = "" if untold is None else why_nothing(ask, untold)
    else:
        log = log_beside(folder)
        views = ViewsInProcess(folder, log, group_ids=window.group_ids)
        views.make(views_named(" ".join(FACTS_VIEWS)))

        def ask_all(text: str) -> list[dict[str, Any]]:
            return (views if window.group_ids is None else ViewsInProcess(folder, log)).ask(text)

        groups = load_facts(views.ask, window, ask_all)
        # Of other groups the views know nothing.
        untold = _untold(groups, window)
        why = "" if untold is None else why_nothing(ask_all, untold)
    if why:
        raise InputError(why)
    return groups


def _untold(groups: Sequence[GroupFacts], window: Window) -> Window | None:
    """Returns the window of the groups of which nothing is told; None where something is of each that was asked for."""
    if window.group_ids is None:
        return None if groups else window
    told = {facts.group_id for facts in groups}
    missing = tuple(group_id for group_id in window.group_ids if group_id not in told)
    return Window(missing, window.since, window.until) if missing else None
