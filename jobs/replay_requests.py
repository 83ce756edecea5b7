"""The command ``muster replay`` as a job: ``spark-submit jobs/replay_requests.py INPUT... --out DIR``."""

from __future__ import annotations

import typer

from coordinator_udf import stopping
from coordinator_udf.commands.replay import main

__all__ = ["main"]

if __name__ == "__main__":
    stopping.run(lambda: typer.run(main))
