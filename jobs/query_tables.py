"""The command ``muster sql`` as a job: ``query_tables.py [--root DIR] [STATEMENT]``."""

from __future__ import annotations

from coordinator_udf.commands.job import run_job
from coordinator_udf.commands.sql import main

if __name__ == "__main__":
    run_job(main)
