"""What the sources of packed requests have in common."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql.datasource import DataSource

from coordinator_udf.streaming.packing import PACKED_REQUESTS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: What the JVM tells each of its Python workers (pyspark/worker_util.py, get_sock_file_to_executor).
_WORKERS_OWN: Final = "PYTHON_WORKER_FACTORY_SECRET"


def leave_signals_to_the_driver() -> None:
    """Lets a process that plans micro-batches live until the JVM closes its socket. To be called in its main thread.

    Under spark-submit it hears of a signal to the process group, too, and Spark would tell its end as a failure of the
    query; the driver ends the query between two micro-batches (streaming.signals).
    """
    if _WORKERS_OWN in os.environ:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


class PackedSource(DataSource):
    """Delivers rows of the request log, packed by partition (columns: packing.PACKED_REQUESTS).

    Attributes:
        format_name: what ``spark.readStream.format`` knows it by.
    """

    format_name: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        """Returns how Spark finds the source."""
        return cls.format_name

    def schema(self) -> StructType:
        """Returns the columns that it delivers."""
        return PACKED_REQUESTS
