"""Files and folders at URIs for what works with paths: copies in a scratch folder, brought here and taken there."""

from __future__ import annotations

import fnmatch
import glob
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from coordinator_udf.stopping import deferred, temporary_directory
from coordinator_udf.tables.parquet_files import empty_others, replace_content
from coordinator_udf.tables.pipes import Pipes
from coordinator_udf.tables.places import files_of, is_uri
from coordinator_udf.user_errors import InputError

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem

#: The folder of a Delta table that says which of its files count.
_DELTA_LOG: Final = "_delta_log"


class Staging:
    """Copies of what is at URIs, under the folders that they have there.

    A path, and a ``file://`` URI, stands for itself; of a pipe, and of ``-``, standard input, there is a copy. All
    others go by delta-rs, with the credentials that it takes.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._pipes = Pipes(scratch / "pipes")
        self._targets: list[tuple[Path, str]] = []

    def fetch(self, place: str) -> Path:
        """Brings a file, a folder or the files of a pattern here; returns its path.

        Raises:
            InputError: there is nothing, or it can't be read.
        """
        path = local_path(place)
        if path is not None:
            return self._pipes.file_of(str(path))
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
        """Fetches each, as `fetch` does."""
        return [self.fetch(place) for place in places]

    def target(self, place: str) -> Path:
        """Returns the path to write a file or a folder to; `send` takes it to its place.

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
        """Does as `target`, for a file that isn't there yet.

        Raises:
            InputError: it is.
        """
        path = self.target(place)
        parent, name = _split(place)
        if path != local_path(place) and _files(files_of(parent), name):
            raise InputError(f"{place} exists; name another, or delete it first")
        return path

    def send(self) -> None:
        """Takes what was written to all targets to their URIs, and leaves all else alone that is there.

        What is large goes first, and nobody sees it. Then each file is put whole, and each table gets its new content
        in one commit; what a table had before is its version before. What fails or is stopped earlier changes nothing.

        Raises:
            InputError: it can't be written there.
        """
        sent: list[_Sent] = []
        try:
            for copy, place in self._targets:
                with _told_of(place):
                    sent.append(_Sent(copy, place))
                    sent[-1].upload()
            # Tables last: those of which some were there would be in the way of a repetition.
            with deferred():
                for each in sorted(sent, key=lambda each: each.has_tables):
                    with _told_of(each.place):
                        each.put()
        except BaseException:
            for each in sent:
                each.take_back()
            raise

    def _copy_of(self, kind: str, place: str) -> Path:
        parts = urlsplit(place)
        inside = [part for part in parts.path.split("/") if part]
        if not inside or ".." in inside:
            raise InputError(f"{place} is no file or folder, expected SCHEME://BUCKET/NAME")
        return self._scratch.joinpath(kind, parts.scheme, parts.netloc, *inside)


class _Sent:
    """What was written to one target, on its way to its URI."""

    def __init__(self, copy: Path, place: str) -> None:
        self.place = place
        self._copy = copy
        self._parent, _ = _split(place)
        self._files = files_of(self._parent)
        self._tables = {log.parent: _added(log) for log in sorted(copy.rglob(_DELTA_LOG))}
        self._streams: list[NativeFile] = []
        self._in_no_table: dict[Path, list[str]] = {table: [] for table in self._tables}

    @property
    def has_tables(self) -> bool:
        return bool(self._tables)

    def upload(self) -> None:
        """Takes there what nobody sees: data files of no table yet, and files that are put when they are closed."""
        for table, actions in self._tables.items():
            for action in actions:
                path = table / action.path
                self._in_no_table[table].append(self._name(path))
                self._stream(path).close()
        for path in [self._copy] if not self._copy.is_dir() else sorted(self._copy.rglob("*")):
            if not path.is_dir() and self._tables.keys().isdisjoint(path.parents):
                self._streams.append(self._stream(path))

    def put(self) -> None:
        """Puts the files, and commits the tables' new content."""
        for stream in self._streams:
            stream.close()
        for table, actions in self._tables.items():
            # A commit of which no answer comes may have been made.
            self._in_no_table[table].clear()
            schema = DeltaTable(str(table)).schema()
            replace_content(f"{self._parent}/{self._name(table)}", actions, schema)
        if self._tables:
            empty_others(self.place.rstrip("/"), {table.name for table in self._tables})

    def take_back(self) -> None:
        """Deletes the data files of which no table knows."""
        for name in chain.from_iterable(self._in_no_table.values()):
            # They are in nobody's way, and why it failed is to be told.
            with suppress(OSError, DeltaError):
                self._files.delete_file(name)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._copy.parent).as_posix()

    def _stream(self, path: Path) -> NativeFile:
        """Returns a stream to a file there that has all of one here.

        It is put when it is closed, and if it isn't, never.
        """
        stream = self._files.open_output_stream(self._name(path))
        with path.open("rb") as data:
            shutil.copyfileobj(data, stream, 1 << 20)
        return stream


@contextmanager
def _told_of(place: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, DeltaError) as error:
        raise InputError(f"{place} can't be written: {error}") from error


@contextmanager
def staging() -> Iterator[Staging]:
    """Makes a scratch folder for as long as the context lasts."""
    with temporary_directory("muster-staging-") as scratch:
        yield Staging(Path(scratch))


def local_path(place: str) -> Path | None:
    """Returns the path of a place on this machine; None where it is at a URI of another storage."""
    if not is_uri(place):
        return Path(place)
    parts = urlsplit(place)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _split(place: str) -> tuple[str, str]:
    parent, _, name = place.rstrip("/").rpartition("/")
    return parent, name


def _files(files: FileSystem, name: str) -> list[str]:
    """Returns the paths of a file, of the files in a folder at any depth, or of those that fit a pattern."""
    from pyarrow.fs import FileSelector, FileType

    if glob.has_magic(name):
        entries = files.get_file_info(FileSelector("", allow_not_found=True))
        return sorted(e.path for e in entries if e.type == FileType.File and fnmatch.fnmatchcase(e.path, name))
    if files.get_file_info(name).type == FileType.File:
        return [name]
    entries = files.get_file_info(FileSelector(name, allow_not_found=True, recursive=True))
    return sorted(entry.path for entry in entries if entry.type == FileType.File)


def _added(log: Path) -> list[AddAction]:
    """Returns the files of a table that was made here, and so has no checkpoint, as its commits tell of them."""
    found: dict[str, AddAction] = {}
    for commit in sorted(log.glob("*.json")):
        for action in map(json.loads, commit.read_text(encoding="utf-8").splitlines()):
            if (add := action.get("add")) is not None:
                name = unquote(add["path"])
                told = add["size"], add["partitionValues"], add["modificationTime"], True, add.get("stats") or "{}"
                found[add["path"]] = AddAction(name, *told)
            elif (remove := action.get("remove")) is not None:
                found.pop(remove["path"], None)
    return list(found.values())
