"""Keeps the classes that a live coordinator's JVM loads, in the form in which the JVM has them in memory.

Loading them is half of the CPU time of a session's start, and much of the first micro-batch's. (JEP 350.)
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from coordinator_udf.settings.coordinator import Settings
from coordinator_udf.settings.file import CoordinatorConfig
from coordinator_udf.streaming.coordinator import Coordinator
from coordinator_udf.streaming.options import StreamOptions
from coordinator_udf.streaming.session import JVM_OPTIONS, coordinator_session
from coordinator_udf.tables.spark_session import CLASS_ARCHIVE, end_jvm, settings_to_archive

#: How long the micro-batches, and the end of the JVM which writes the archive, may take, in seconds each.
#: `scripts/setup` waits for it, so the bound is for what hangs.
_TIMEOUT_S: Final = 300.0
#: So many micro-batches load the classes that are archived.
_BATCHES: Final = 5


def archive_classes() -> None:
    """Runs a coordinator for some micro-batches and keeps its classes, for later sessions of this machine.

    Raises:
        RuntimeError: it doesn't get that far.
    """
    draft = CLASS_ARCHIVE.with_suffix(".new")
    draft.unlink(missing_ok=True)
    CLASS_ARCHIVE.unlink(missing_ok=True)
    spark = coordinator_session(more=settings_to_archive(draft, JVM_OPTIONS))
    with tempfile.TemporaryDirectory(prefix="muster-classes-") as directory:
        root = Path(directory)
        options = StreamOptions(str(root / "log"), str(root / "tables"), str(root / "checkpoint"), tick_ms=50)
        with Coordinator(spark, options, CoordinatorConfig(Settings())) as coordinator:
            _wait_for_batches(coordinator)
    end_jvm(spark, _TIMEOUT_S)
    draft.rename(CLASS_ARCHIVE)


def _wait_for_batches(coordinator: Coordinator) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while (progress := coordinator.query.lastProgress) is None or progress.batchId < _BATCHES:
        if not coordinator.query.isActive or time.monotonic() > deadline:
            raise RuntimeError(f"the coordinator made no {_BATCHES} micro-batches: {coordinator.query.exception()}")
        time.sleep(0.1)
