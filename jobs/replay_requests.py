"""The command ``muster replay`` as a job: ``spark-submit jobs/replay_requests.py INPUT... --out DIR``."""

from __future__ import annotations

from coordinator_udf.commands.job import run_job
from coordinator_udf.commands.replay import main

__all__ = ["main"]

if __name__ == "__main__":
    run_job(main)
