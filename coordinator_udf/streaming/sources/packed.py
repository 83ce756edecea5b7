"""What the sources of packed requests have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource

from coordinator_udf.streaming.packing import PACKED_REQUESTS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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
