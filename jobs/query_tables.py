"""The command ``muster sql`` as a job: ``query_tables.py [--root DIR] [STATEMENT]``."""

from __future__ import annotations

import typer

from coordinator_udf import stopping
from coordinator_udf.commands.sql import main

if __name__ == "__main__":
    stopping.run(lambda: typer.run(main))
