"""The command ``muster search-worlds`` as a job: ``search_worlds.py SCENARIO... --seeds 0:10000 --done FILE``."""

from __future__ import annotations

from coordinator_udf.commands.job import run_job
from coordinator_udf.commands.search_worlds import main

__all__ = ["main"]

if __name__ == "__main__":
    run_job(main)
