"""The command ``muster live`` as a job: ``spark-submit jobs/coordinator_stream.py --root DIR``."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

try:
    import coordinator_udf  # noqa: F401
except ModuleNotFoundError:  # not installed: run from a checkout
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coordinator_udf.commands.live import main

if __name__ == "__main__":
    typer.run(main)
