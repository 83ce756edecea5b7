"""What is typed into the SQL shell is completed, and kept for the next time."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator_udf.sql.shapes import SHAPES
from coordinator_udf.sql.terminal import KEYWORDS, KnownColumns, completions
from schemas.views import VIEWS
from tests.conftest import ROOT
from tests.waiting import wait

TYPED = """
import sys
from coordinator_udf.sql.shell import Statements
class Echo(Statements):
    def run(self, statement):
        print(f"<{statement}>")
Echo().interact()
"""


def columns_of(name: str) -> list[str]:
    return {"rebalances": ["group_id", "generation"], "gaps": ["gap", "group_id"]}.get(name, [])


@pytest.mark.parametrize(
    ("text", "statement", "expected"),
    [
        ("reb", "SELECT * FROM reb", ["rebalances"]),
        ("gen", "SELECT gen FROM rebalances", ["generation"]),
        ("gen", "SELECT gen FROM Rebalances", ["generation"]),
        ("gen", "SELECT gen FROM groups", []),
        ("ga", "SELECT ga\nFROM gaps", ["gaps", "gap"]),
        ("sel", "sel", ["select"]),
        ("SEL", "SEL", ["SELECT"]),
        ("Wh", "SELECT * FROM gaps Wh", ["WHEN", "WHERE"]),
    ],
)
def test_words_are_completed(text: str, statement: str, expected: list[str]) -> None:
    assert completions(text, statement, columns_of) == expected


def test_after_a_point_there_are_columns_alone() -> None:
    assert completions("g", "SELECT r.g FROM rebalances r", columns_of, is_of_table=True) == ["generation", "group_id"]
    assert completions("", "SELECT r. FROM rebalances r", columns_of, is_of_table=True) == ["generation", "group_id"]
    assert not set(completions("", "SELECT ", columns_of)) & set(KEYWORDS)


def test_every_table_and_view_has_its_columns() -> None:
    columns = KnownColumns()
    assert all("source" in columns(name) for name in (*SHAPES, *VIEWS) if name != "consumer_offsets")
    assert "waiting_for_joins_ms" in columns("rebalances")
    assert "client_id" in columns("waited_for")


class Terminal:
    """A shell at a terminal, as somebody sees it."""

    def __init__(self, master: int) -> None:
        self._master = master
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def shows(self, text: str) -> None:
        """Waits until a text is there."""
        wait(lambda: text in self._read(), f"{text!r} is shown", lambda: self.shown)

    def _read(self) -> str:
        os.set_blocking(self._master, False)
        try:
            while piece := os.read(self._master, 4096):
                self.shown += piece.decode()
        except OSError:
            # Nothing more now, or the shell has ended.
            pass
        return self.shown


@contextmanager
def terminal(home: Path) -> Iterator[Terminal]:
    process, master = pty.fork()
    if process == 0:
        environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT), "TERM": "dumb"}
        os.execve(sys.executable, [sys.executable, "-c", TYPED], environment)
    try:
        shown = Terminal(master)
        shown.shows("sql> ")
        yield shown
    finally:
        os.close(master)
        os.waitpid(process, 0)


@pytest.mark.slow
def test_keys_complete_and_lines_are_remembered(tmp_path: Path) -> None:
    with terminal(tmp_path) as first:
        first.type("SELECT 1\n")
        first.shows("...> ")
        first.type("FROM storm\t r WHERE r.stopped\t;\n")
        first.shows("<SELECT 1\r\nFROM storms r WHERE r.stopped_ms")
        first.type("exit;\n")
        wait((tmp_path / ".muster_history").is_file, "history is written", lambda: first.shown)
    with terminal(tmp_path) as second:
        # One line up is exit;.
        second.type("\x10\x10\n")
        second.shows("WHERE r.stopped_ms")
        second.type("exit;\n")


@pytest.mark.slow
def test_without_a_place_for_history_a_line_says_so(tmp_path: Path) -> None:
    home = tmp_path / "nowhere"
    with terminal(home) as shell:
        shell.type("exit;\n")
        shell.shows(f"sql: {home}/.muster_history can't be written, so that what was typed isn't kept: No such file")
        assert "Traceback" not in shell.shown
        assert "ignored" not in shell.shown
