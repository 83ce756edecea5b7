"""What ``muster report`` says of odd inputs and options, and that it loses nothing."""

from __future__ import annotations

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
