"""The command ``muster report`` as a job: ``report_incident.py INPUT... -o incident.html``."""

from __future__ import annotations

import typer

from coordinator_udf import stopping
from coordinator_udf.commands.report import main

__all__ = ["main"]

if __name__ == "__main__":
    stopping.run(lambda: typer.run(main))
