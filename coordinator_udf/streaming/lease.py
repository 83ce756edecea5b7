"""Who coordinates on a folder of tables: a lease that is renewed, so that a second coordinator sees whether one lives.

What keeps an older coordinator from writing is the epoch in the tables (tables.epoch). The lease only tells when it may
be raised: a coordinator that comes later takes over from one that has ended, that has died (on one machine its lock is
free) or that has been silent, and is refused while the other renews its lease.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from pyarrow import fs

from coordinator_udf.background import BackgroundThread
from coordinator_udf.file_locks import is_locked_by_one
from coordinator_udf.log.clock import boot_id
from coordinator_udf.tables.delta import OutputTables
from coordinator_udf.tables.durability import sync_all
from coordinator_udf.tables.places import absolute, files_of, is_uri
from coordinator_udf.user_errors import UserError

_log: Final = logging.getLogger(__name__)

#: How often a lease is renewed, and how long one is watched before its holder is taken for silent, in seconds: after
#: five renewals that didn't come. With half as long a driver that stands still for 5 s loses its tables to a standby,
#: with double a standby waits for 20 s beside what a start takes.
RENEW_EVERY_S: Final = 2.0
SILENT_AFTER_S: Final = 10.0
#: After how long without a renewal others go on as if the holder were away, which takes nothing from it, in seconds:
#: two renewals and half of one. With half one that is late counts, double is longer than the shortest session (6 s).
MISSED_AFTER_S: Final = 5.0
#: How often the lease is looked at meanwhile, in seconds: as late as that a renewal is seen.
_WATCH_EVERY_S: Final = 0.2

#: Beside the tables; Delta and Spark leave names alone that begin with an underscore.
_FOLDER: Final = "_coordinator"
_LEASE: Final = f"{_FOLDER}/lease.json"


class StartError(UserError):
    """The coordinator can't be started like this; the message says why and what to do."""


class _Holder(msgspec.Struct, frozen=True):
    """What a lease says: who coordinates, and whether it still does."""

    epoch: int
    host: str
    pid: int
    checkpoint: str
    boot_id: str = ""
    renewals: int = 0
    is_over: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, epoch {self.epoch}"


class Lease:
    """This coordinator's lease on its tables. Made by `take_over`.

    Attributes:
        before: who had the tables before and may still live; None if nobody.
    """

    def __init__(self, tables: OutputTables, checkpoint: str, before: _Holder | None) -> None:
        self.before = before
        self._tables = tables
        self._files = files_of(tables.folder)
        self._is_lost = threading.Event()
        self._exit = ExitStack()
        self._holder = _Holder(tables.claim(), socket.gethostname(), os.getpid(), checkpoint, boot_id())
        self._waits_for: tuple[int, str] | None = None
        self._thread = BackgroundThread(self._run, "lease")

    def __enter__(self) -> Lease:
        is_local = not is_uri(self._tables.folder)
        if is_local:
            self._lock()
        _write(self._files, self._holder)
        if is_local:
            # After a loss of power it has to be there, if only torn: it tells that there was one.
            lease = Path(self._tables.folder, _LEASE)
            sync_all((lease, lease.parent, lease.parent.parent))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()
        try:
            if not self._is_taken():
                _write(self._files, msgspec.structs.replace(self._holder, is_over=True))
        except OSError as error:
            _log.warning("that this coordinator ended couldn't be said in %s: %s", self._tables.folder, error)
        self._exit.close()

    @property
    def epoch(self) -> int:
        """The epoch in which this coordinator writes."""
        return self._holder.epoch

    def raise_if_lost(self, *, look: bool = False) -> None:
        """Tells that another coordinator took over.

        Args:
            look: look into the tables, too, and not only whether it was noticed already.

        Raises:
            FencedError: another one has the tables.
        """
        if look or self._is_lost.is_set():
            self._tables.refuse_fenced()

    def lock_later(self, descriptor: int, what: str) -> None:
        """Locks a directory as soon as the coordinator before, which doesn't use it any more, is gone."""
        self._waits_for = (descriptor, what)

    def _lock(self) -> None:
        folder = Path(self._tables.folder) / _FOLDER
        folder.mkdir(exist_ok=True)
        mine = _lock_file(folder, self._holder.epoch)
        descriptor = os.open(mine, os.O_RDWR | os.O_CREAT, 0o644)
        self._exit.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in folder.glob("*.lock"):
            if path != mine:
                path.unlink(missing_ok=True)

    def _run(self, stop: threading.Event) -> None:
        renewals = 0
        while not stop.wait(RENEW_EVERY_S):
            renewals += 1
            try:
                if self._is_taken():
                    self._is_lost.set()
                    return
                _write(self._files, msgspec.structs.replace(self._holder, renewals=renewals))
            except OSError as error:
                _log.warning("the lease on %s couldn't be renewed: %s", self._tables.folder, error)
            if self._waits_for is not None:
                with suppress(BlockingIOError):
                    fcntl.flock(self._waits_for[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._waits_for = None

    def _is_taken(self) -> bool:
        found = _read(self._files)
        return found is not None and found.epoch > self._holder.epoch


def take_over(tables: OutputTables, checkpoint: str) -> Lease:
    """Takes tables over from a coordinator that doesn't use them any more; enter the lease to keep it.

    Args:
        checkpoint: of the coordinator that starts.

    Raises:
        StartError: another coordinator renews its lease.
        FencedError: another coordinator takes them over at the same time.
    """
    files = files_of(tables.folder)
    found = _read(files)
    if found is None or found.is_over or _is_dead(tables.folder, found):
        found = None
    else:
        _watch(files, found, tables.folder)
        _log.warning(
            "the coordinator on %s (%s) has been silent for %.0f s: its tables are taken over, it can write no more",
            *(tables.folder, found, SILENT_AFTER_S),
        )
    return Lease(tables, absolute(checkpoint), found)


@contextmanager
def exclusive_checkpoint(checkpoint: str, lease: Lease) -> Iterator[None]:
    """Sees to it that one coordinator at a time uses a checkpoint on this machine, which is made if need be.

    The coordinator from which the tables were taken over may still hold it: it can finish no micro-batch.

    Raises:
        StartError: another one does.
    """
    if is_uri(checkpoint):
        yield
        return
    path = Path(checkpoint)
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise StartError(f"the checkpoint {path} can't be used: {error}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if lease.before is None or lease.before.checkpoint != absolute(checkpoint):
                raise StartError(f"another coordinator runs on the checkpoint {path}; stop it first") from None
            lease.lock_later(descriptor, checkpoint)
        yield
    finally:
        os.close(descriptor)


class LeaseWatch:
    """Watches the lease on a folder of tables, for somebody who writes none of them.

    Args:
        folder: the tables, a path or a URI; they needn't be there yet.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files = files_of(folder)
        self._seen: _Holder | None = None
        self._seen_s = 0.0

    def is_coordinator_away(self) -> bool:
        """Returns whether the last coordinator has ended, died or missed renewals; not where there is no lease to tell.

        Call it more often than leases are renewed.

        Raises:
            OSError: the lease can't be read now.
        """
        found = _read(self._files)
        if found is None:
            return False
        now_s = time.monotonic()
        if found != self._seen:
            self._seen, self._seen_s = found, now_s
        return found.is_over or _is_dead(self._folder, found) or now_s - self._seen_s > MISSED_AFTER_S


def has_lost_power(folder: str) -> bool:
    """Returns whether the machine went down while a coordinator used the tables in a folder of its disks."""
    lease = Path(folder) / _LEASE
    if not lease.is_file():
        return False
    holder = _read(files_of(folder))
    # Not even the lease can be read that was being written.
    return holder is None or (
        not holder.is_over and holder.host == socket.gethostname() and holder.boot_id != boot_id()
    )


def _watch(files: fs.FileSystem, holder: _Holder, folder: str) -> None:
    deadline = time.monotonic() + SILENT_AFTER_S
    while time.monotonic() < deadline:
        time.sleep(_WATCH_EVERY_S)
        found = _read(files)
        if found is not None and found.is_over:
            return
        if found != holder:
            raise StartError(f"another coordinator runs on the folder of tables {folder} ({found}); stop it first")


def _is_dead(folder: str, holder: _Holder) -> bool:
    """Returns whether the holder's process is gone for certain: it was on this machine, and its lock is free."""
    if is_uri(folder) or holder.host != socket.gethostname():
        return False
    try:
        return not is_locked_by_one(_lock_file(Path(folder) / _FOLDER, holder.epoch))
    except FileNotFoundError:
        return True


def _lock_file(folder: Path, epoch: int) -> Path:
    return folder / f"{epoch}.lock"


def _read(files: fs.FileSystem) -> _Holder | None:
    try:
        with files.open_input_stream(_LEASE) as stream:
            return msgspec.json.decode(stream.read(), type=_Holder)
    except (FileNotFoundError, msgspec.DecodeError):
        # One that is being written where that isn't atomic is read again.
        return None


def _write(files: fs.FileSystem, holder: _Holder) -> None:
    text = msgspec.json.encode(holder)
    if not isinstance(files, fs.SubTreeFileSystem):
        with files.open_output_stream(_LEASE) as stream:
            stream.write(text)
        return
    # An object store puts an object whole; a file is made aside and renamed.
    draft = f"{_LEASE}.{holder.epoch}.new"
    with files.open_output_stream(draft) as stream:
        stream.write(text)
    files.move(draft, _LEASE)
