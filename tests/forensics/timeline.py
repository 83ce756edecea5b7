"""What was really done to groups while a log was recorded: the timelines that stand beside the recordings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

_LINE: Final = re.compile(r"(?P<at>\S+ \S+) (?:t\+\S+ )?(?P<what>.*)")
_SPAWN: Final = re.compile(r"spawn \w+ (?P<client>\S+) group=(?P<group>\S+) (?P<options>\{.*\})")
_COMMAND: Final = re.compile(r"(?P<client>\S+) <- (?P<what>close|stall|sub)(?: (?P<argument>\S+))?")
_START: Final = re.compile(r"start (?P<client>c\d+) \(process \d+ of it\)")
_BLOCK: Final = re.compile(r"(?P<client>c\d+) blocks in processing for (?P<s>[\d.]+) s")
_SETTING: Final = re.compile(r"([a-z][\w.]*)=(\S+)")


@dataclass
class Process:
    """A client's process: what it was given, and what became of it."""

    client_id: str
    group_id: str
    protocol: str
    instance_id: str | None
    session_ms: int | None
    max_poll_ms: int
    spawned: datetime
    ended: datetime | None = None
    how: str | None = None
    stalls: list[tuple[datetime, int]] = field(default_factory=list)
    subscribed: list[datetime] = field(default_factory=list)

    @property
    def identity(self) -> str:
        return self.instance_id or self.client_id

    def lived(self, at: datetime, slack: timedelta = timedelta()) -> bool:
        return self.spawned <= at and (self.ended is None or at <= self.ended + slack)

    def poll_missed(self) -> list[datetime]:
        """When it had not polled for longer than it may."""
        most = timedelta(milliseconds=self.max_poll_ms)
        return [at + most for at, ms in self.stalls if ms > self.max_poll_ms]


@dataclass
class Timeline:
    """What the driver of a scenario did."""

    processes: list[Process] = field(default_factory=list)
    #: From when to when a broker was down, and whether it was killed.
    downs: list[tuple[datetime, datetime, bool]] = field(default_factory=list)
    admin: list[tuple[datetime, list[str]]] = field(default_factory=list)
    begin: datetime | None = None
    end: datetime | None = None
    has_fuzz: bool = False

    def of(self, group_id: str) -> list[Process]:
        return [process for process in self.processes if process.group_id == group_id]

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys(process.group_id for process in self.processes))


def read_timeline(path: Path) -> Timeline:
    """Reads a timeline of either form.

    Raises:
        ValueError: a line has no time.
    """
    reader = _Reader()
    for line in path.read_text(encoding="utf-8").splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"{path}: {line!r} is no line of a timeline")
        reader.read(datetime.fromisoformat(found["at"]), found["what"])
    return reader.timeline


class _Reader:
    def __init__(self) -> None:
        self.timeline = Timeline()
        self._settings: dict[str, str] = {}
        self._down: tuple[datetime, bool] | None = None

    def read(self, at: datetime, what: str) -> None:
        timeline = self.timeline
        timeline.begin = timeline.begin or at
        words = what.split()
        if what.startswith(("run W", "client settings:", "broker settings:")):
            self._settings.update(_SETTING.findall(what))
        elif spawned := _SPAWN.match(what):
            options = ast.literal_eval(spawned["options"])
            timeline.processes.append(_of_options(spawned["client"], spawned["group"], options, at))
        elif started := _START.match(what):
            timeline.processes.append(self._of_settings(started["client"], at))
        elif words[0] == "broker" or words[0] == "admin" or what.startswith("end"):
            self._read_around(at, words)
        elif "bin/fuzz" in what:
            timeline.has_fuzz = True
        else:
            self._read_command(at, what)

    def _read_command(self, at: datetime, what: str) -> None:
        words = what.split()
        if what.startswith("kill -9 ") and words[2] != "worker":
            self._end(words[2], at, "killed")
        elif what.startswith("close "):
            self._end(words[1], at, "closed")
        elif told := _COMMAND.match(what):
            if told["what"] == "close":
                self._end(told["client"], at, "closed")
            elif told["what"] == "stall":
                self._running(told["client"]).stalls.append((at, int(told["argument"])))
            else:
                self._running(told["client"]).subscribed.append(at)
        elif blocked := _BLOCK.match(what):
            self._running(blocked["client"]).stalls.append((at, round(float(blocked["s"]) * 1000)))

    def _read_around(self, at: datetime, words: list[str]) -> None:
        timeline = self.timeline
        if words[0] == "admin":
            timeline.admin.append((at, words[1:]))
        elif words[0] == "end":
            timeline.end = at
            for process in timeline.processes:
                if process.ended is None:
                    process.ended, process.how = at, "closed"
        elif words[1] in {"stop", "kill"}:
            self._down = (at, words[1] == "kill")
        elif words[1] == "start" and self._down is not None:
            timeline.downs.append((self._down[0], at, self._down[1]))

    def _of_settings(self, client: str, at: datetime) -> Process:
        known = self._settings
        is_static = "group.instance.id" in known
        session = known.get("session.timeout.ms") or known.get("group.consumer.session.timeout.ms")
        return Process(
            client, known["group"], known["group.protocol"], "i" + client[1:] if is_static else None,
            int(session) if session else None, int(known["max.poll.interval.ms"]), at,
        )  # fmt: skip

    def _running(self, client: str) -> Process:
        return next(process for process in reversed(self.timeline.processes) if process.client_id == client)

    def _end(self, client: str, at: datetime, how: str) -> None:
        process = self._running(client)
        process.ended, process.how = at, how


def _of_options(client: str, group: str, options: dict[str, Any], at: datetime) -> Process:
    return Process(
        client, group, options.get("protocol", "classic"), options.get("instance_id"), options.get("session_ms"),
        options.get("poll_ms", 300_000), at,
    )  # fmt: skip


def timelines(folders: Iterable[Path]) -> Iterator[tuple[Path, Timeline]]:
    """All timelines of some folders."""
    for folder in folders:
        for path in sorted(folder.glob("*.timeline.txt")):
            yield path, read_timeline(path)
