"""Spark's daemon of Python workers, with all that a shard's worker needs loaded before workers are forked from it.

Spark's own forks first and loads in each worker (pyspark/daemon.py), as some packages start threads when they are
loaded. Of ours only Arrow does: its allocator, which is made to be forked.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

from pyspark import daemon

#: The module by its name, as Spark's setting spark.python.daemon.module wants it.
MODULE: Final = "coordinator_udf.streaming.worker_daemon"

#: What a worker runs that executes tasks. Those that only plan a source need less.
_OF_TASKS: Final = "pyspark.worker"


def main() -> None:
    """Loads and forks until Spark closes standard input."""
    if sys.argv[1:] == [_OF_TASKS]:
        preload()
    daemon.manager()


def preload() -> None:
    """Loads what a worker loads to execute the tasks of a micro-batch."""
    for name in ("pyspark.sql.pandas.serializers", _OF_TASKS, "coordinator_udf.streaming.shard_function"):
        import_module(name)


if __name__ == "__main__":
    main()
