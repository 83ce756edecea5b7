"""What can be read only once, as a pipe or standard input, put in a file, which can be read again."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path
from typing import IO, Final

from coordinator_udf.user_errors import InputError

#: What stands for standard input, and for standard output, where a file is named.
STANDARD: Final = "-"
_STDIN: Final = "/dev/stdin"
#: This process's own descriptors, by which a shell names what <(COMMAND) writes.
_DESCRIPTOR: Final = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_CHUNK_BYTES: Final = 1 << 20


class Pipes:
    """The copies of what could be read only once.

    Args:
        scratch: the folder that they are put in; it need not be there yet.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._taken: set[tuple[int, int]] = set()

    def file_of(self, place: str) -> Path:
        """Returns the path of a file: of the copy of a pipe, which is read to its end for that; else the place's own.

        Raises:
            InputError: it can't be read, or was read already.
        """
        name = _STDIN if place == STANDARD else place
        number = _descriptor(name)
        try:
            status = Path(name).stat() if number is None else os.fstat(number)
        except OSError as error:
            if number is None:
                # Who reads it tells what is wrong.
                return Path(name)
            raise InputError(f"{place} can't be read: it is closed; give a file, or write to it") from error
        if number is not None and stat.S_ISREG(status.st_mode):
            # Other processes have other descriptors.
            real = Path(name).resolve()
            if real.exists() and os.path.samestat(real.stat(), status):
                return real
        elif not (stat.S_ISFIFO(status.st_mode) or (number is not None and not stat.S_ISDIR(status.st_mode))):
            return Path(name)
        if (status.st_dev, status.st_ino) in self._taken:
            raise InputError(f"{place} is named twice, but can be read only once; name it once")
        self._taken.add((status.st_dev, status.st_ino))
        return self._copied(place, name, number)

    def _copied(self, place: str, name: str, number: int | None) -> Path:
        base = Path(name).name if number is None else "stdin" if number == 0 else f"fd-{number}"
        copy = self._scratch / str(len(self._taken)) / base
        copy.parent.mkdir(parents=True)
        try:
            with _opened(name, number) as pipe, copy.open("wb") as file:
                shutil.copyfileobj(pipe, file, _CHUNK_BYTES)
        except OSError as error:
            raise InputError(f"{place} can't be read into a temporary file, {copy}: {error.strerror}") from error
        return copy


def _descriptor(name: str) -> int | None:
    """Returns the number of the descriptor of this process that a path stands for."""
    if name == _STDIN:
        return 0
    found = _DESCRIPTOR.fullmatch(name)
    return None if found is None else int(found[1])


def _opened(name: str, number: int | None) -> IO[bytes]:
    if number is None:
        return Path(name).open("rb")
    return os.fdopen(os.dup(number), "rb")
