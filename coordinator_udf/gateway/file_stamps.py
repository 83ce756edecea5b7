"""What a watched file looks like from outside, by which it is seen to have been written to or replaced."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, NamedTuple

#: For how long after a change a file may change once more without looking otherwise. File systems take their times from
#: a clock that goes on every 1 to 10 ms, and in whole seconds where they keep no fractions (ext3, HFS+, some NFS); with
#: less a second change could be missed there, and with more a file is read a second time somewhat later.
_SETTLES_NS: Final = 1_000_000_000


class FileStamp(NamedTuple):
    """Differs from an earlier one if the file was written to or replaced since, even by one that is older.

    Attributes:
        inode: whose content it is; another one where a file was moved to its place, or a link led elsewhere.
        is_settled: whether a change from now on would show in its times. A file that has just changed is not, so that
            it is read once more a look later.
    """

    inode: int
    size: int
    modified_ns: int
    changed_ns: int
    is_settled: bool


def file_stamp(path: Path | None) -> FileStamp | None:
    """Returns a file's stamp, to be taken before it is read; None where there is none."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    if found is None:
        return None
    is_settled = abs(time.time_ns() - found.st_ctime_ns) > _SETTLES_NS
    return FileStamp(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, is_settled)
