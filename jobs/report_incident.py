"""The command ``muster report`` as a job: ``report_incident.py INPUT... -o incident.html``."""

from __future__ import annotations

from coordinator_udf.commands.job import run_job
from coordinator_udf.commands.report import main

__all__ = ["main"]

if __name__ == "__main__":
    run_job(main)
