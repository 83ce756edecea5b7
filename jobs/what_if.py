"""The command ``muster what-if`` as a job: ``what_if.py LOG --session-timeout-ms 30000``."""

from __future__ import annotations

from coordinator_udf.commands.job import run_job
from coordinator_udf.commands.what_if import main

__all__ = ["main"]

if __name__ == "__main__":
    run_job(main)
