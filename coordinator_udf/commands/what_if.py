"""Asks what a broker's log would have looked like under other settings.

``muster what-if LOG --session-timeout-ms 30000``: each member's behaviour is taken from the log and run again
in virtual time, first under the settings as they were (the calibration), then under the changed ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from coordinator_udf.settings.file import read_pairs
from coordinator_udf.simulation.garbage import look_for_garbage_rarely
from coordinator_udf.simulation.what_if.change import Change
from coordinator_udf.simulation.what_if.change_checks import checked_plan
from coordinator_udf.simulation.what_if.comparison import Outcome, compare
from coordinator_udf.simulation.what_if.group_log import GroupLog, read_groups
from coordinator_udf.simulation.what_if.log_entries import read_entries
from coordinator_udf.simulation.what_if.other_kinds import not_simulated
from coordinator_udf.simulation.what_if.report import as_json, report_lines
from coordinator_udf.simulation.what_if.span import Span, span_of, why_nothing_is_counted
from coordinator_udf.tables.output_places import check_file, write_file
from coordinator_udf.user_errors import InputError, telling_errors

#: Kafka's properties of times are 32 bits wide.
_MOST_MS = 2**31 - 1
#: Each is run three times; of a log of an hour that many take days, and figures don't change any more.
_MOST_WORLDS = 10_000
_CLIENT = "As if every client had this consumer property."
_GROUP = _CLIENT + " In groups of KIP-848 it is the coordinator's."

_BaseSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--base-set", metavar="NAME=VALUE", help="A setting that the coordinator had when the log was written."
    ),
]
_Assignor = Annotated[
    str | None,
    typer.Option(
        help="Of classic groups: range, roundrobin, sticky or cooperative-sticky; of those of KIP-848, be it by "
        "--protocol consumer: uniform or range."
    ),
]
_From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help="Count from then on (ISO 8601, UTC, or ms); default: from the first disturbance."
    ),
]
_To = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="Count until then; default: the shutdown at its end.")
]


def main(
    *,
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            help="A broker's request log (kafka.request.logger), plain or gzip; or the tables of a coordinator.",
        ),
    ],
    group: Annotated[list[str] | None, typer.Option(help="Only this group; may be repeated.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A changed setting of the coordinator.")
    ] = None,
    base_settings: _BaseSettings = None,
    static: Annotated[
        bool, typer.Option("--static", help="As if each client id were a static member's instance id.")
    ] = False,
    assignor: _Assignor = None,
    protocol: Annotated[Literal["classic", "consumer"] | None, typer.Option(help="The group protocol.")] = None,
    session_timeout_ms: Annotated[int | None, typer.Option(min=1, max=_MOST_MS, help=_GROUP)] = None,
    heartbeat_interval_ms: Annotated[int | None, typer.Option(min=1, max=_MOST_MS, help=_GROUP)] = None,
    max_poll_interval_ms: Annotated[int | None, typer.Option(min=1, max=_MOST_MS, help=_CLIENT)] = None,
    coordinator_cadence_ms: Annotated[
        int | None,
        typer.Option(min=0, max=_MOST_MS, help="As if the coordinator answered once in so many milliseconds."),
    ] = None,
    start: _From = None,
    end: _To = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            max=_MOST_WORLDS,
            help="How many worlds to run, and as many of other days; counts are what most have, times are means.",
        ),
    ] = 20,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON.")] = None,
) -> None:
    """Compares what happened to a log's groups with what would have happened under other settings."""
    look_for_garbage_rarely()
    with telling_errors("what-if"):
        if json_file is not None:
            _check_json(json_file, log)
        entries = read_entries(log)
        others = not_simulated(entries)
        groups = _groups(read_groups(entries, read_pairs(base_settings or ())), others, group, log)
        change = Change(
            settings=read_pairs(settings or ()),
            is_static=static,
            assignor=assignor,
            protocol=protocol,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            max_poll_interval_ms=max_poll_interval_ms,
            cadence_ms=coordinator_cadence_ms,
        )
        span = span_of(start, end, entries)
        _check(groups, change, span)
        outcomes = _compared(groups, change, seeds, span)
    left_out = others if group is None else {}
    for line in report_lines(outcomes, left_out):
        typer.echo(line)
    if json_file is not None:
        _write_json(json_file, as_json(outcomes, left_out, change))


def _check_json(json_file: Path, log: Path) -> None:
    """Looks whether the figures can be written.

    Raises:
        InputError: they can't, or it is the log.
    """
    check_file(json_file, "--json")
    if json_file.exists() and log.exists() and json_file.samefile(log):
        raise InputError(f"--json is {json_file}, which is the log; name another file")


def _write_json(json_file: Path, figures: dict[str, Any]) -> None:
    with telling_errors("what-if"):
        write_file(json_file, msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n", "--json")


def _check(groups: list[GroupLog], change: Change, span: Span) -> None:
    """Looks whether the change can be made to each group, and whether there is anything to count.

    Raises:
        InputError, SettingsError: it can't, or there isn't.
    """
    for one in groups:
        checked_plan(one.group_id, one.plan, change)
    reasons = {one.group_id: why_nothing_is_counted(one.plan, one.formed_ms, span) for one in groups}
    if all(reasons.values()):
        told = "; ".join(f"{group_id}: {why}" for group_id, why in reasons.items())
        raise InputError(f"nothing would be counted between --from and --to: {told}")


def _compared(groups: list[GroupLog], change: Change, seeds: int, span: Span) -> list[Outcome]:
    """Compares group by group, and says how far it is."""
    outcomes = []
    for number, one in enumerate(groups, 1):
        typer.echo(
            f"what-if: {one.group_id} ({number} of {len(groups)}), {seeds} worlds twice, and by chance", err=True
        )
        outcomes.append(compare(one, change, range(seeds), span, range(seeds)))
    return outcomes


def _groups(groups: list[GroupLog], others: Mapping[str, str], wanted: list[str] | None, log: Path) -> list[GroupLog]:
    """Returns the groups that are asked for, all of a log's if none is.

    Raises:
        InputError: the log doesn't have one of them, or has it of members that aren't simulated, or has no other.
    """
    by_name = {one.group_id: one for one in groups}
    for name in wanted or ():
        if name in others:
            raise InputError(f"{name} isn't simulated: {others[name]}")
        if name not in by_name:
            raise InputError(
                f"{log} has no group {name!r} whose members joined; it has: {', '.join(by_name) or 'none'}"
            )
    chosen = [by_name[name] for name in dict.fromkeys(wanted)] if wanted else groups
    if not chosen:
        said = "".join(f"; {name} isn't simulated: {why}" for name, why in others.items())
        raise InputError(f"{log} has no group of consumers whose members joined{said}")
    return chosen
