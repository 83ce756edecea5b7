"""A command of its own as a job: what spark-submit and python run."""

from __future__ import annotations

from collections.abc import Callable

import typer

from coordinator_udf import stopping


def job_app() -> typer.Typer:
    """Returns a job's command line, to be given its command: help tells options whole, and errors have no boxes."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def run_job(main: Callable[..., None]) -> None:
    """Runs a command that ends quietly when it is told to stop."""
    app = job_app()
    app.command()(main)
    stopping.run(app)
