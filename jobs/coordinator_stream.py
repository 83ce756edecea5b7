"""The command ``muster live`` as a job: ``spark-submit jobs/coordinator_stream.py --root DIR``."""

from __future__ import annotations

import typer

from coordinator_udf import stopping
from coordinator_udf.commands.live import main

if __name__ == "__main__":
    stopping.run(lambda: typer.run(main))
