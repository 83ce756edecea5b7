"""The files of a query's checkpoint, on this machine or where Spark reaches it by a URI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from coordinator_udf.tables.durability import sync
from coordinator_udf.tables.places import is_uri
from coordinator_udf.user_errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_FILE: Final = "java.io.FileNotFoundException"


class CheckpointPlaceError(UserError):
    """Spark can't reach the place of a checkpoint; the message says why."""


class CheckpointFiles(Protocol):
    """What is read of a checkpoint, and written beside what Spark writes; names are relative to it.

    Attributes:
        place: the checkpoint as a person named it.
    """

    place: str

    def names(self, folder: str) -> list[str]:
        """Returns the names in a folder; none where it isn't there."""
        ...

    def read(self, name: str) -> str | None:
        """Returns a file's text; None where it isn't there."""
        ...

    def write(self, name: str, text: str) -> None:
        """Writes a file, whole or not at all; it is durable on return."""
        ...


class LocalFiles:
    """A checkpoint on this machine's disks."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._root = Path(place)

    def names(self, folder: str) -> list[str]:
        """Returns the names in a folder; none where it isn't there."""
        return [path.name for path in (self._root / folder).glob("*")]

    def read(self, name: str) -> str | None:
        """Returns a file's text; None where it isn't there."""
        try:
            return (self._root / name).read_text("utf-8")
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        """Writes a file, whole or not at all; it is durable on return."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.write_text(text, "utf-8")
        sync(draft)
        draft.rename(path)
        sync(path.parent)


class SparkFiles:
    """A checkpoint on a storage that Spark knows: with its drivers, its settings and its credentials."""

    def __init__(self, place: str, spark: SparkSession) -> None:
        self.place = place
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001
        self._root = self._jvm.org.apache.hadoop.fs.Path(place)
        from py4j.protocol import Py4JJavaError

        try:
            self._files = self._root.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
        except Py4JJavaError as error:
            why = str(error.java_exception.getMessage())
            raise CheckpointPlaceError(
                f"Spark can't reach the checkpoint {place}: {why}; give it the jars of that storage (for s3a:// the "
                "package org.apache.hadoop:hadoop-aws), and its settings and credentials"
            ) from error

    def names(self, folder: str) -> list[str]:
        """Returns the names in a folder; none where it isn't there."""
        found = self._unless_missing(lambda: self._files.listStatus(self._path(folder)))
        return [status.getPath().getName() for status in found or ()]

    def read(self, name: str) -> str | None:
        """Returns a file's text; None where it isn't there."""
        stream = self._unless_missing(lambda: self._files.open(self._path(name)))
        if stream is None:
            return None
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            return text
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Writes a file, whole or not at all; it is durable on return."""
        # By Spark's own manager of checkpoints, which renames where a storage doesn't put objects whole.
        jvm = self._jvm
        managers = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        manager = managers.create(self._root, self._files.getConf())
        stream = manager.createAtomic(self._path(name), True)
        try:
            stream.write(bytearray(text.encode()))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def _unless_missing(self, act: Any) -> Any:
        from py4j.protocol import Py4JJavaError

        try:
            return act()
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == _NO_FILE:
                return None
            raise


def checkpoint_files(place: str, spark: SparkSession) -> CheckpointFiles:
    """Returns the files of the checkpoint at a path or URI."""
    return SparkFiles(place, spark) if is_uri(place) else LocalFiles(place)
