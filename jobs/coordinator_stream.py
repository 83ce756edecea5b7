"""The command ``muster live`` as a job: ``spark-submit jobs/coordinator_stream.py --root DIR``."""

from __future__ import annotations

from coordinator_udf.commands.job import run_job
from coordinator_udf.commands.live import main

if __name__ == "__main__":
    run_job(main)
