"""Where a command's output can't be written it says so before the work is done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from coordinator_udf.commands.job import as_app
from coordinator_udf.tables.output_places import write_file
from coordinator_udf.user_errors import InputError
from jobs import replay_members, replay_requests, search_worlds, simulate_groups, what_if
from tests.conftest import ROOT, SAMPLE_LOG

_SCENARIO = str(ROOT / "conf" / "scenarios" / "crash-loop.toml")
_MEMBERS, _REPLAY = as_app(replay_members.main), as_app(replay_requests.main)
_WHAT_IF, _SIMULATE, _SEARCH = as_app(what_if.main), as_app(simulate_groups.main), as_app(search_worlds.main)


@pytest.mark.parametrize(
    ("app", "arguments"),
    [
        (_WHAT_IF, (str(SAMPLE_LOG), "--seeds", "5000", "--json")),
        (_SEARCH, (_SCENARIO, "--seeds", "0:100000", "--done")),
        (_MEMBERS, ("/nowhere.jsonl", "--differences")),
        (_SIMULATE, (_SCENARIO, "--seeds", "5000", "--out")),
    ],
)
@pytest.mark.parametrize(("place", "said"), [("{}/file/found", "file"), ("/proc/found", "can't be written")])
def test_what_cant_be_written_is_said_before_the_work(
    app: typer.Typer, arguments: tuple[str, ...], place: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    result = CliRunner().invoke(app, [*arguments, place.format(tmp_path)])
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert said in line
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("app", "argument"),
    [
        (_WHAT_IF, "--json"),
        (_SEARCH, "--done"),
        (_REPLAY, "--jsonl"),
        (_REPLAY, "--differences"),
    ],
)
@pytest.mark.parametrize(
    ("place", "said"), [("", "which is a folder; expected the name of a file"), ("no/found", "but there is no folder")]
)
def test_a_file_that_cant_be_is_said_with_its_option(
    app: typer.Typer, argument: str, place: str, said: str, tmp_path: Path
) -> None:
    input_file = _SCENARIO if app is _SEARCH else str(SAMPLE_LOG)
    elsewhere = ["--out", str(tmp_path / "out")] if app is _REPLAY else []
    result = CliRunner().invoke(app, [input_file, argument, str(tmp_path / place), *elsewhere])
    assert result.exit_code == 2
    assert f"{argument} is {tmp_path / place}" in result.stderr
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_replay_makes_files_beside_its_tables(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(_REPLAY, [str(SAMPLE_LOG), "--out", str(out), "--jsonl", str(out / "said.jsonl")])
    assert result.exit_code == 0, result.stderr
    assert (out / "said.jsonl").stat().st_size


def test_figures_are_not_written_over_their_log(tmp_path: Path) -> None:
    log = tmp_path / SAMPLE_LOG.name
    shutil.copy(SAMPLE_LOG, log)
    result = CliRunner().invoke(_WHAT_IF, [str(log), "--json", str(log)])
    assert result.exit_code == 2
    assert "which is the log; name another file" in result.stderr
    assert log.read_bytes() == SAMPLE_LOG.read_bytes()


def test_a_file_that_cant_be_written_after_all_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--json is .*, which can't be written: No such file or directory"):
        write_file(tmp_path / "gone" / "found", b"", "--json")
