"""What a benchmark finds, as a table for people and as JSON for a later comparison."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import msgspec

#: The format of the JSON; a change that old files can't be read with raises it.
FORMAT = 1

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow", "pandas", "numpy", "msgspec")

Better = Literal["higher", "lower", "neither"]


class Figure(msgspec.Struct, frozen=True):
    """One thing that was measured. ``better`` says which way is an improvement."""

    name: str
    value: float
    unit: str
    better: Better = "higher"


class Outcome(msgspec.Struct):
    """What one benchmark found.

    Attributes:
        figures: what was measured, in the order in which it is shown.
        notes: what a reader has to know, such as what was skipped and why.
        seconds: how long it took.
    """

    figures: list[Figure] = []
    notes: list[str] = []
    seconds: float = 0.0

    def add(self, name: str, value: float, unit: str, better: Better = "higher") -> None:
        """Adds a figure."""
        self.figures.append(Figure(name, value, unit, better))


class Environment(msgspec.Struct):
    """Where and with what was measured. Figures of different environments don't compare, ratios within one do."""

    taken_at: str
    commit: str
    python: str
    java: str
    packages: dict[str, str]
    machine: str
    cores: int
    memory_bytes: int
    load_1min: float


class Results(msgspec.Struct):
    """All that one run of scripts/bench found."""

    environment: Environment
    scale: float
    benchmarks: dict[str, Outcome]
    format: int = FORMAT


class ResultsError(Exception):
    """A file of results can't be read; the message says which and why."""


def environment() -> Environment:
    """Returns the machine and the versions as they are now."""
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    return Environment(
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=_first_line(["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]),
        python=platform.python_version(),
        java=_first_line(["java", "-version"]),
        packages=packages,
        machine=f"{platform.system()} {platform.machine()}",
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        load_1min=round(os.getloadavg()[0], 2),
    )


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "not there"
    lines = (done.stdout + done.stderr).splitlines()
    return lines[0] if done.returncode == 0 and lines else "unknown"


def save(results: Results, path: Path) -> None:
    """Writes results as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")


def load(path: Path) -> Results:
    """Reads what `save` wrote.

    Raises:
        ResultsError: there is no such file, or it holds no results of this format.
    """
    try:
        results = msgspec.json.decode(path.read_bytes(), type=Results)
    except OSError as error:
        raise ResultsError(f"the results {path} can't be read: {error}") from error
    except msgspec.DecodeError as error:
        raise ResultsError(f"{path} holds no results of scripts/bench: {error}") from error
    if results.format != FORMAT:
        raise ResultsError(f"the results {path} have format {results.format}, expected {FORMAT}: measure them again")
    return results


def table(results: Results, against: Results | None = None) -> Iterator[str]:
    """Yields the lines of a table of all figures; with those of earlier results and their ratio beside them."""
    rows = [("benchmark", "figure", "value", "unit", *(("before", "now/before", "") if against else ()))]
    for name, outcome in results.benchmarks.items():
        before = _values(against.benchmarks.get(name)) if against else {}
        for figure in outcome.figures:
            row = [name, figure.name, _number(figure.value), figure.unit]
            if against:
                row += _compared(figure, before.get(figure.name))
            rows.append(tuple(row))
    yield from _aligned(rows)
    for name, outcome in results.benchmarks.items():
        for note in outcome.notes:
            yield f"{name}: {note}"
    if against and against.scale != results.scale:
        yield f"compared with results of scale {against.scale:g}, these are of scale {results.scale:g}"


def _values(outcome: Outcome | None) -> dict[str, float]:
    return {} if outcome is None else {figure.name: figure.value for figure in outcome.figures}


def _compared(figure: Figure, before: float | None) -> list[str]:
    if before is None:
        return ["-", "-", "new"]
    if before == 0:
        return [_number(before), "-", ""]
    ratio = figure.value / before
    changed = abs(ratio - 1) > 0.05
    improved = (ratio > 1) == (figure.better == "higher")
    word = "" if not changed or figure.better == "neither" else "better" if improved else "worse"
    return [_number(before), f"{ratio:.2f}", word]


def _number(value: float) -> str:
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numeric = {2, 4, 5}
    for row in rows:
        cells = [
            cell.rjust(width) if i in numeric else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
