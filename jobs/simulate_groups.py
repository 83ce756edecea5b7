"""The command ``muster simulate`` as a job: ``spark-submit jobs/simulate_groups.py SCENARIO... --out DIR``."""

from __future__ import annotations

from coordinator_udf.commands.job import run_job
from coordinator_udf.commands.simulate import main

__all__ = ["main"]

if __name__ == "__main__":
    run_job(main)
