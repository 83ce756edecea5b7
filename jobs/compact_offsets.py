"""The command ``muster compact`` as a job: ``spark-submit jobs/compact_offsets.py --tables DIR``."""

from __future__ import annotations

import typer

from coordinator_udf import stopping
from coordinator_udf.commands.compact import main

__all__ = ["main"]

if __name__ == "__main__":
    stopping.run(lambda: typer.run(main))
