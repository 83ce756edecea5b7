"""A command of its own as a job: what spark-submit and python run."""

from __future__ import annotations

from collections.abc import Callable

import typer

from coordinator_udf import stopping


def run_job(main: Callable[..., None]) -> None:
    """Runs a command that ends quietly when it is told to stop; its help tells options whole, its errors no boxes."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(main)
    stopping.run(app)
