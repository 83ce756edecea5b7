"""What a loss of power leaves of files, told from the system calls of those who wrote them (strace).

The worst that a file system may do is assumed: a name that no fsync of its directory put on the disk is gone, with all
that is below it, and so is every byte that no fsync of its file did. Files are taken for written once, as Spark's and
Delta's are; one that is renamed over another has lost the other. What was deleted stays so.
"""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Final

STRACE: Final = (
    *("strace", "-f", "-qq", "-y", "--seccomp-bpf", "-e", "status=successful", "-s", "4096"),
    *("-e", "trace=fsync,fdatasync,rename,renameat,renameat2,link,linkat,open,openat,creat,mkdir,mkdirat"),
)
_CALL: Final = re.compile(r"^\d+ +(\w+)\((.*)\) += \d+")
_PATH: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_DESCRIPTOR: Final = re.compile(r"^\d+<(.*?)>")


class Disk:
    """Which names and files are on the disk."""

    def __init__(self, strace: Path, root: Path) -> None:
        self._names: dict[str, bool] = {}
        self._files: dict[str, bool] = {}
        self._root = f"{root}/"
        self.syncs = 0
        with strace.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if self._root in line and (call := _CALL.match(line)):
                    self._take(call[1], call[2])

    def _take(self, name: str, arguments: str) -> None:
        paths = _PATH.findall(arguments)
        match name:
            case "fsync" | "fdatasync":
                if found := _DESCRIPTOR.match(arguments):
                    self._sync(found[1])
            case "rename" | "renameat" | "renameat2" | "link" | "linkat":
                source, target = paths
                self._files[target] = self._files.get(source, False)
                self._names.setdefault(target, False)
            case "mkdir" | "mkdirat":
                self._names.setdefault(paths[0], False)
            case _ if "O_CREAT" in arguments or name == "creat":
                self._names.setdefault(paths[0], False)
                self._files[paths[0]] = False

    def _sync(self, path: str) -> None:
        self.syncs += 1
        if path in self._files:
            self._files[path] = True
        for name in self._names:
            if name.rpartition("/")[0] == path:
                self._names[name] = True

    def lose(self, folder: Path, chance: random.Random | None) -> tuple[int, int]:
        """Takes from a folder what isn't on the disk; returns how many names and how many files' bytes that were.

        Args:
            chance: decides of each loss whether it happens; None: all do.
        """
        names = lost = 0
        for path in sorted(folder.rglob("*")):
            if not path.exists():
                continue
            is_name, is_file = self._names.get(str(path), True), self._files.get(str(path), True)
            if not is_name and (chance is None or chance.random() < 0.5):
                names += 1
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif path.is_file() and not is_file and (chance is None or chance.random() < 0.5):
                lost += 1
                size = 0 if chance is None else chance.randrange(path.stat().st_size + 1)
                with path.open("r+b") as file:
                    file.truncate(size)
        return names, lost
