"""The command ``muster compact`` as a job: ``spark-submit jobs/compact_offsets.py --tables DIR``."""

from __future__ import annotations

from coordinator_udf.commands.compact import main
from coordinator_udf.commands.job import run_job

__all__ = ["main"]

if __name__ == "__main__":
    run_job(main)
