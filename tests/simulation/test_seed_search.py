"""A search through many seeds: what it finds is told, and it goes on where it was stopped."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator_udf.commands.job import as_app
from coordinator_udf.commands.search_worlds import main
from coordinator_udf.simulation import seed_search
from coordinator_udf.simulation.invariants import LOST_JOIN
from coordinator_udf.simulation.telling import told_once
from coordinator_udf.simulation.violation import SeedViolation, Violation
from tests.conftest import ROOT

_SCENARIO = str(ROOT / "conf" / "scenarios" / "crash-loop.toml")


def _run(*arguments: str) -> Any:
    return CliRunner().invoke(as_app(main), list(arguments))


def _ran(monkeypatch: pytest.MonkeyPatch, kind: str | None = None) -> list[int]:
    """Lets each world have a violation, and returns the list of seeds that will have been run."""
    ran: list[int] = []

    class Recorded:
        def __init__(self, plan: object, seed: int) -> None:
            ran.append(seed)

        def run(self) -> None:
            """Has no history."""

    monkeypatch.setattr(seed_search, "World", Recorded)
    found = [] if kind is None else [Violation(0, "g", kind, "so it is")]
    monkeypatch.setattr(seed_search, "violations", lambda _: found)
    return ran


def test_a_search_goes_on_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = tmp_path / "done"
    ran = _ran(monkeypatch)
    assert _run(_SCENARIO, "--seeds", "0:40", "--done", str(done)).exit_code == 0
    with done.open("ab") as file:
        file.write(b'{"scenario":"crash-')
    result = _run(_SCENARIO, "--seeds", "0:60", "--done", str(done))
    assert result.exit_code == 0
    assert "crash-loop: 60 worlds, none with a violation" in result.stdout
    assert ran == list(range(60))


def test_what_is_found_is_told_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _ran(monkeypatch, "two owners")
    arguments = _SCENARIO, "--seeds", "3:5", "--done", str(tmp_path / "done")
    assert _run(*arguments).exit_code == 1
    again = _run(*arguments)
    assert again.exit_code == 1
    assert "crash-loop: 2 worlds, 2 with two owners" in again.stdout


def test_other_code_searches_all_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran = _ran(monkeypatch)
    arguments = _SCENARIO, "--seeds", "3:5", "--done", str(tmp_path / "done")
    assert _run(*arguments).exit_code == 0
    assert _run(*arguments).exit_code == 0
    assert ran == [3, 4]
    monkeypatch.setattr(seed_search, "code_digest", lambda: "0.2.0 abc")
    result = _run(*arguments)
    assert ran == [3, 4, 3, 4]
    assert "crash-loop: 2 worlds, none" in result.stdout


def test_the_digest_of_the_code_is_of_all_its_sources() -> None:
    version, digest = seed_search.code_digest().split()
    assert version == metadata.version("muster")
    assert len(digest) == 12
    assert seed_search.code_digest() == f"{version} {digest}"


def test_two_scenarios_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "crash-loop.toml").write_bytes(Path(_SCENARIO).read_bytes())
    result = _run(_SCENARIO, str(tmp_path / "crash-loop.toml"), "--seeds", "3:5", "--done", str(tmp_path / "done"))
    assert result.exit_code == 2
    assert "two scenarios have the same file name" in result.stderr


def test_what_is_kafkas_own_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _ran(monkeypatch, LOST_JOIN)
    result = _run(_SCENARIO, "--seeds", "3:5", "--done", str(tmp_path / "done"))
    assert result.exit_code == 0
    assert "2 with lost join" in result.stdout


def test_a_real_world_is_searched(tmp_path: Path) -> None:
    result = _run(_SCENARIO, "--seeds", "0:1", "--done", str(tmp_path / "done"))
    assert result.exit_code == 0, result.output
    assert "crash-loop: 1 worlds, none with a violation" in result.stdout


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "done").write_text("notes\n")
    result = _run(_SCENARIO, "--seeds", "0:1", "--done", str(tmp_path / "done"))
    assert result.exit_code == 2
    assert "isn't what a search has written" in result.stderr


@pytest.mark.parametrize(
    "seeds", ["²:5", "1:2³", "٣:٥", "-3:5", "5:5", "5", "a:b", "1:99999999999999999999", "0:1000001"]
)
def test_seeds_that_are_no_range_are_refused(seeds: str, tmp_path: Path) -> None:
    done = tmp_path / "done"
    result = _run(_SCENARIO, f"--seeds={seeds}", "--done", str(done))
    assert result.exit_code == 2
    assert f"--seeds is {seeds!r}, expected FIRST:LAST" in result.output
    assert not done.exists()


def test_what_a_world_has_many_of_is_told_in_one_line() -> None:
    found = [SeedViolation(7, "late commit", "g", f"c0/1 committed {number}") for number in range(3)]
    found += [SeedViolation(7, "late commit", "h", "c9/1 committed 5"), SeedViolation(8, "waiting", "g", "c1/1 waits")]
    lines = list(told_once(Path(_SCENARIO), found))
    assert [line.partition(" (again: ")[0] for line in lines] == [
        "crash-loop, seed 7: late commit in g, the first of 3: c0/1 committed 0",
        "crash-loop, seed 7: late commit in h: c9/1 committed 5",
        "crash-loop, seed 8: waiting in g: c1/1 waits",
    ]
    assert all(line.endswith(f"--replay {seed})") for line, seed in zip(lines, (7, 7, 8), strict=True))
