"""What ``muster report`` says of odd inputs and options, and that it loses nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import typer
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from coordinator_udf.commands.report import main
from tests.conftest import SAMPLE_LOG


def report(*words: object) -> Result:
    app = typer.Typer()
    app.command()(main)
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a report of the sample."""
    folder = tmp_path_factory.mktemp("kept")
    done = report(SAMPLE_LOG, "-o", folder / "incident.html", "--keep", folder / "tables")
    assert done.exit_code == 0, done.output
    return folder / "tables"


def test_what_nobody_may_look_at_is_refused_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever tests may be root, whom nothing is closed to."""
    stat, locked = Path.stat, tmp_path / "locked"
    locked.mkdir()

    def refused(self: Path, **more: bool) -> os.stat_result:
        if locked in self.parents:
            raise PermissionError(errno.EACCES, "Permission denied")
        return stat(self, **more)

    monkeypatch.setattr(Path, "stat", refused)
    for words, said in (
        ((locked / "server.log",), f"report: {locked}/server.log can't be read: Permission denied\n"),
        ((locked,), f"report: {locked} can't be read: Permission denied\n"),
        ((SAMPLE_LOG, "-o", locked / "x.html"), f"report: {locked}/x.html can't be written: no permission\n"),
    ):
        done = report("-o", tmp_path / "x.html", *words)
        assert (done.exit_code, done.stderr) == (2, said)


def test_tables_that_are_there_are_replaced_only_if_asked(kept: Path, tmp_path: Path) -> None:
    version = DeltaTable(str(kept / "group_transitions")).version()
    asked = (SAMPLE_LOG, "-o", tmp_path / "incident.html", "--keep", kept)
    done = report(*asked)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert "holds tables already" in line
    assert line.endswith("choose another --keep or say --overwrite")
    assert DeltaTable(str(kept / "group_transitions")).version() == version
    assert list(tmp_path.iterdir()) == []
    assert report(*asked, "--overwrite").exit_code == 0
    assert DeltaTable(str(kept / "group_transitions")).version() == version + 1
