"""The command ``muster``."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Final

import typer

from coordinator_udf import stopping
from coordinator_udf.user_errors import telling_errors

_EXAMPLES: Final = """
Kafka's group coordinator, to replay, to explain and to run.

Examples:

  muster report server.log kafka-request.log* -o incident.html

  muster replay kafka-request.log.gz --out data/replay

  muster sql --root data/replay "SELECT * FROM waited_for"
"""

#: By name: the module, and what the list of commands says of it.
COMMANDS: Final = {
    "replay": "Replay logs into tables, and compare answers.",
    "report": "Tell from logs or tables what happened, as a page.",
    "sql": "Ask the tables in SQL.",
    "live": "Run the coordinator on a stream of requests.",
    "what-if": "Tell from a log what other settings would have done.",
    "simulate": "Run scenarios, and look for what must not be.",
    "search-worlds": "Look for that only, in many worlds.",
    "compact": "Compact the offsets table.",
}
#: What each command's help ends with.
EXAMPLES: Final = {
    "replay": (
        "muster replay kafka-request.log* server.log* --out data/replay",
        "muster replay logs/ --out data/replay --set group.consumer.session.timeout.ms=30000 --overwrite",
        "muster replay kafka-request.log --state offsets-7.txt --explain",
    ),
    "report": (
        "muster report server.log kafka-request.log* -o incident.html",
        'muster report kafka-request.log --group orders --from "2026-11-22 06:50:00" --format md -o ticket.md',
        "muster report data/replay -o incident.html",
    ),
    "sql": (
        'muster sql --root data/replay "SELECT * FROM findings"',
        'muster sql --root data/replay --format csv "SELECT * FROM rebalances" > rebalances.csv',
        "muster sql --root data/replay --file questions.sql",
        "muster sql --root data/replay",
    ),
    "live": (
        "muster live --root data/live --config conf/demo.toml --listen 127.0.0.1:9092",
        "muster live --root data/front --listen 127.0.0.1:9092 --upstream 127.0.0.1:19092",
    ),
    "what-if": (
        "muster what-if kafka-request.log --group orders --session-timeout-ms 30000",
        "muster what-if kafka-request.log --protocol consumer --json predicted.json",
        "muster what-if data/live/tables --static",
    ),
    "simulate": (
        "muster simulate conf/scenarios/crash-loop.toml --out data/worlds --seeds 20",
        "muster simulate conf/scenarios/crash-loop.toml --replay 17",
        "muster simulate conf/scenarios/fleet.toml --members 1000000 --seeds 10 --plot load.svg",
    ),
    "search-worlds": ("muster search-worlds conf/scenarios/*.toml --seeds 0:10000 --done searched.jsonl",),
    "compact": ("muster compact --tables data/live/tables",),
    "offsets": (
        "muster offsets export --tables data/live/tables --out offsets.jsonl.gz",
        "muster offsets import offsets.jsonl.gz --tables data/copy --source cluster-a",
        "muster offsets migrate --group orders --upstream 127.0.0.1:19092 --gateway 127.0.0.1:9092",
    ),
}


def main() -> None:
    """Runs the command that is named first. Only its module is loaded: others bring Spark."""
    named = next((word for word in _words() if not word.startswith("-")), None)

    def run() -> None:
        app_of(named)()

    with telling_errors(str(named)):
        # Loading takes a second, in which Ctrl-C is to be as quiet.
        stopping.run(run)


def app_of(named: str | None) -> typer.Typer:
    """Returns the command line, with the command that is named; None for those that stand before one."""
    app = typer.Typer(help=_EXAMPLES, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
    for name, help_text in COMMANDS.items():
        wanted = name == named
        command = import_module(module_of(name)).main if wanted else _not_loaded
        app.command(name, help=None if wanted else help_text, epilog=_epilog(name))(command)
    offsets = import_module("coordinator_udf.commands.offsets").app if named == "offsets" else typer.Typer()
    bring = "Bring offsets to and from tables and clusters."
    app.add_typer(offsets, name="offsets", help=bring, epilog=_epilog("offsets"))
    app.callback(help=_EXAMPLES)(_options)
    return app


def module_of(command: str) -> str:
    """Returns the module of a command."""
    return f"coordinator_udf.commands.{command.replace('-', '_')}"


def _tell_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"muster {version('muster')}")
        raise typer.Exit


def _options(
    *,
    _: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell the version, and end.")
    ] = False,
) -> None:
    """Stands before each command."""


def _epilog(command: str) -> str:
    # So marked, lines are not wrapped: they are to be copied.
    return "\n\n".join(["Examples:", *(f"\b\n{example}" for example in EXAMPLES[command])])


def _words() -> list[str]:
    """Returns what follows ``muster``, on the command line itself or on the one that a shell wants to complete."""
    if "_MUSTER_COMPLETE" not in os.environ:
        return sys.argv[1:]
    # By bash, and by the other shells.
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:]


def _not_loaded() -> None:
    """Stands for a command that is not the one that is named."""


if __name__ == "__main__":
    main()
