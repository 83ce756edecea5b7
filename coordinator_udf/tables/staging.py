"""Files and folders at URIs for what works with paths: copies in a scratch folder, brought here and taken there."""

from __future__ import annotations

import fnmatch
import glob
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from deltalake.exceptions import DeltaError

from coordinator_udf.tables.places import files_of, is_uri
from coordinator_udf.user_errors import InputError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

#: The folder of a Delta table that says which of its files count: taken there last.
_DELTA_LOG: Final = "_delta_log"


class Staging:
    """Copies of what is at URIs, under the folders that they have there.

    A path, and a ``file://`` URI, stands for itself. All others go by delta-rs, with the credentials that it takes.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._targets: list[tuple[Path, str]] = []

    def fetch(self, place: str) -> Path:
        """Brings a file, a folder or the files of a pattern here; returns its path.

        Raises:
            InputError: there is nothing, or it can't be read.
        """
        path = local_path(place)
        if path is not None:
            return path
        copy = self._copy_of("in", place)
        parent, name = _split(place)
        try:
            files = files_of(parent)
            found = list(_files(files, name))
            for file in found:
                here = copy.parent / file
                here.parent.mkdir(parents=True, exist_ok=True)
                with files.open_input_stream(file) as source, here.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
        except (OSError, ValueError, DeltaError) as error:
            raise InputError(f"{place} can't be read: {error}") from error
        if not found:
            raise InputError(f"there is no input {place}")
        return copy

    def fetch_all(self, places: Sequence[str]) -> list[Path]:
        """As `fetch`, each."""
        return [self.fetch(place) for place in places]

    def target(self, place: str) -> Path:
        """Returns the path to write a file or a folder to; `send` takes it to its place, in the stead of what is there.

        Raises:
            InputError: it can't be the place of anything.
        """
        path = local_path(place)
        if path is not None:
            return path
        copy = self._copy_of("out", place)
        copy.parent.mkdir(parents=True, exist_ok=True)
        self._targets.append((copy, place))
        return copy

    def new_file(self, place: str) -> Path:
        """As `target`, of a file that isn't there yet.

        Raises:
            InputError: it is.
        """
        path = self.target(place)
        parent, name = _split(place)
        if path != local_path(place) and _files(files_of(parent), name):
            raise InputError(f"{place} exists; name another, or delete it first")
        return path

    def send(self) -> None:
        """Takes what was written to all targets to their URIs.

        Raises:
            InputError: it can't be written there.
        """
        for copy, place in self._targets:
            parent, name = _split(place)
            try:
                files = files_of(parent)
                if copy.is_dir():
                    for old in list(_files(files, name)):
                        files.delete_file(old)
                for file in sorted(_inside(copy), key=_log_last):
                    _send(files, file, file.relative_to(copy.parent).as_posix())
            except (OSError, ValueError, DeltaError) as error:
                raise InputError(f"{place} can't be written: {error}") from error

    def _copy_of(self, kind: str, place: str) -> Path:
        parts = urlsplit(place)
        inside = [part for part in parts.path.split("/") if part]
        if not inside or ".." in inside:
            raise InputError(f"{place} is no file or folder, expected SCHEME://BUCKET/NAME")
        return self._scratch.joinpath(kind, parts.scheme, parts.netloc, *inside)


@contextmanager
def staging() -> Iterator[Staging]:
    """A scratch folder for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="muster-staging-") as scratch:
        yield Staging(Path(scratch))


def local_path(place: str) -> Path | None:
    """The path of a place on this machine; None where it is at a URI of another storage."""
    if not is_uri(place):
        return Path(place)
    parts = urlsplit(place)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _split(place: str) -> tuple[str, str]:
    parent, _, name = place.rstrip("/").rpartition("/")
    return parent, name


def _files(files: FileSystem, name: str) -> list[str]:
    """The paths of a file, of the files in a folder at any depth, or of those that fit a pattern."""
    from pyarrow.fs import FileSelector, FileType

    if glob.has_magic(name):
        entries = files.get_file_info(FileSelector("", allow_not_found=True))
        return sorted(e.path for e in entries if e.type == FileType.File and fnmatch.fnmatchcase(e.path, name))
    if files.get_file_info(name).type == FileType.File:
        return [name]
    entries = files.get_file_info(FileSelector(name, allow_not_found=True, recursive=True))
    return sorted(entry.path for entry in entries if entry.type == FileType.File)


def _inside(copy: Path) -> Iterator[Path]:
    return (path for path in copy.rglob("*") if path.is_file()) if copy.is_dir() else iter([copy])


def _log_last(path: Path) -> tuple[bool, str]:
    return _DELTA_LOG in path.parts, str(path)


def _send(files: FileSystem, source: Path, target: str) -> None:
    with source.open("rb") as data, files.open_output_stream(target) as out:
        shutil.copyfileobj(data, out, 1 << 20)
