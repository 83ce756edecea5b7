"""The pages that tell people about Muster, and what can be read out of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), ROOT / "tests" / "data" / "README.md"])

_FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"^```(?:sh)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")


class Example(NamedTuple):
    """A command that a page shows with what it prints."""

    page: Path
    command: tuple[str, ...]
    output: str


@cache
def text_of(page: Path) -> str:
    return page.read_text("utf-8")


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCED.sub("", text_of(page))


def links(page: Path) -> list[str]:
    """The targets of a page's links that lead into the project."""
    return [target for target in _LINK.findall(prose(page)) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """What can stand behind the # of a link to a page."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in _HEADING.findall(prose(page))}


def spans(page: Path) -> list[str]:
    """What stands between backticks."""
    return _SPAN.findall(prose(page))


def examples(page: Path) -> list[Example]:
    """The commands after a ``$`` that have their output below them."""
    found = []
    for block in _FENCED.findall(text_of(page)):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, output = _split(part)
            found.append(Example(page, command, output))
    return found


def programs(page: Path) -> list[str]:
    """The Python that a page shows."""
    return _PYTHON.findall(text_of(page))


def _split(part: str) -> tuple[tuple[str, ...], str]:
    """A command, which goes on while a quotation is open, and the lines after it."""
    lines = part.splitlines(keepends=True)
    for end in range(1, len(lines) + 1):
        try:
            return tuple(shlex.split("".join(lines[:end]))), "".join(lines[end:])
        except ValueError:
            continue
    raise ValueError(f"a quotation that is never closed: {part}")


def commands(page: Path) -> Iterator[tuple[str, ...]]:
    """Every command line that a page shows, in blocks and between backticks."""
    unprompted = [block for block in _SHELL.findall(text_of(page)) if not re.search(r"^\$ ", block, re.MULTILINE)]
    for block in [*_INDENTED.findall(prose(page)), *unprompted]:
        for line in re.sub(r"\\\n", " ", block).splitlines():
            yield _words(line)
    for example in examples(page):
        yield example.command
    for span in spans(page):
        yield _words(span)


def _words(line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line, comments=True))
    except ValueError:
        return tuple(line.split())
