"""Where tables, logs and checkpoints are: paths of this machine, or URIs of a storage that many machines see."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def is_uri(place: str) -> bool:
    """Returns whether a place is a URI (``s3://bucket/folder``) and not a path."""
    return "://" in place


def is_directory(path: Path) -> bool:
    """Returns whether a directory is there, as far as this user may know; Path.is_dir raises an error in its stead."""
    try:
        return path.is_dir()
    except OSError:
        return False


def absolute(place: str) -> str:
    """Returns the place, a path made absolute, as Spark needs it: its processes have other working directories."""
    return place if is_uri(place) else str(Path(place).absolute())


class _AsBytes:
    """A file of delta-rs that is being written, which takes bytes where Arrow gives buffers."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        written: int = self._file.write(bytes(data))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def files_of(folder: str) -> FileSystem:
    """Returns the files of a folder of tables, by paths relative to it.

    A URI's with the credentials that delta-rs takes.
    """
    import pyarrow as pa
    from pyarrow import fs

    if not is_uri(folder):
        return fs.SubTreeFileSystem(str(Path(folder).absolute()), fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    class Handler(DeltaStorageHandler):
        def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> Any:
            return pa.PythonFile(_AsBytes(self._handler.open_output_stream(path, metadata)), "w")

    return fs.PyFileSystem(Handler(folder.rstrip("/") + "/"))
