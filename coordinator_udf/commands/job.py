"""A command of its own as a job: what spark-submit and python run."""

from __future__ import annotations

from collections.abc import Callable

import typer

from coordinator_udf import stopping


def job_app() -> typer.Typer:
    """Returns a job's command line, to be given its command: help tells options whole, and errors have no boxes."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def as_app(main: Callable[..., None]) -> typer.Typer:
    """Returns a job's command line with this one command."""
    app = job_app()
    app.command()(main)
    return app


def options_given(context: typer.Context) -> frozenset[str]:
    """Returns the options that are on the command line, and the names of the arguments that are."""
    sources = ((parameter, context.get_parameter_source(parameter.name or "")) for parameter in context.command.params)
    return frozenset(
        parameter.opts[0] for parameter, source in sources if source is not None and source.name == "COMMANDLINE"
    )


def run_job(main: Callable[..., None]) -> None:
    """Runs a command that ends quietly when it is told to stop."""
    stopping.run(as_app(main))
