"""What ``muster report`` says of odd inputs and options, and that it loses nothing."""

from __future__ import annotations

import errno
import gzip
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


def test_what_is_for_reading_logs_is_refused_for_tables(kept: Path, tmp_path: Path) -> None:
    given = ("--set", "group.max.size=3", "--state", "dump.txt", "--one-broker", "--keep", tmp_path / "kept",
             "--overwrite", "--doubt-from", "0.1", "--time-zone", "Europe/Berlin")  # fmt: skip
    done = report(kept, "-o", tmp_path / "incident.html", *given)
    assert done.exit_code == 2
    options = "--set, --state, --one-broker, --keep, --overwrite, --doubt-from, --time-zone"
    said = f"{options} can't apply to the tables in {kept}: leave out what is for reading logs, or name the logs"
    assert done.stderr == f"report: {said}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_window_in_which_nothing_is_told_is_refused_with_what_there_is(kept: Path, tmp_path: Path) -> None:
    unknown = "--group is 'crash', of which these inputs tell nothing; expected one of: crash-a, crash-b"
    early = (
        "nothing is told of the group 'crash-a' with --to 2026-11-19 23:00:00 (UTC); the inputs are of 2026-11-21 02:"
    )
    for words, said in (
        (("--group", "crash"), unknown),
        (("--group", "crash-a", "--to", "2026-11-20", "--time-zone", "Europe/Berlin"), early),
    ):
        done = report(kept, "-o", tmp_path / "incident.html", *words)
        assert done.exit_code == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"report: {said}")


def test_a_group_that_no_log_names_is_refused_before_any_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replays(*_: object) -> None:
        raise AssertionError("it was replayed")

    monkeypatch.setattr("coordinator_udf.commands.report.replay", replays)
    result = report(SAMPLE_LOG, "--group", "crash", "--keep", tmp_path / "kept", "-o", tmp_path / "page.html")
    assert result.exit_code == 2
    assert "--group is 'crash', of which these inputs tell nothing; expected one of: crash-a, crash-b" in result.stderr
    assert not list(tmp_path.iterdir())
    # What JSON writes otherwise isn't found by looking, and may be there.
    with pytest.raises(AssertionError, match="it was replayed"):
        raise report(SAMPLE_LOG, "--group", 'a"b', "-o", tmp_path / "page.html").exception or RuntimeError


def test_a_report_is_of_all_groups_that_are_named(kept: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for inputs in (SAMPLE_LOG, kept):
        result = report(inputs, "--group", "crash-b", "--group", "crash-a", "--format", "md", "-o", page)
        assert result.exit_code == 0, result.output
        assert {"## crash-a", "## crash-b"} <= set(page.read_text().splitlines())
        result = report(inputs, "--group", "crash-b", "--format", "md", "-o", page)
        assert "## crash-a" not in page.read_text().splitlines()
        result = report(inputs, "--group", "crash-b", "--group", "crash", "-o", page)
        assert result.exit_code == 2
        assert "--group is 'crash', of which these inputs tell nothing" in result.stderr


@pytest.mark.parametrize("until", ["2026-11-21 02:00", "2026-11-21 03:00", "2026-11-21T03:00Z"])
def test_what_is_wrong_with_the_time_is_said_before_anything_is_read(until: str) -> None:
    done = report("nowhere.log", "--from", "2026-11-21 03:00", "--to", until)
    said = f"--from is 2026-11-21 03:00, expected a time before --to, which is {until}"
    assert (done.exit_code, said in done.stderr) == (2, True)


@pytest.mark.parametrize(("form", "name"), [("html", "html"), ("md", "md"), ("perfetto", "json")])
def test_a_report_without_a_name_is_called_by_its_format(
    form: str, name: str, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = report(kept, "--format", form)
    assert done.exit_code == 0
    assert done.stdout == f"incident.{name}: 2 groups, 9 rebalances\n"
    assert [path.name for path in tmp_path.iterdir()] == [f"incident.{name}"]


@pytest.mark.parametrize(
    ("words", "begin"),
    [
        (["-o", "ticket.md"], "# Rebalances"),
        (["-o", "trace.json"], "{"),
        (["-o", "page.html"], "<!doctype html>"),
        (["-o", "page"], "<!doctype html>"),
        (["-o", "TICKET.MD"], "# Rebalances"),
        (["-o", "page.txt", "--format", "md"], "# Rebalances"),
        (["-o", "page.md", "--format", "html"], "<!doctype html>"),
    ],
)
def test_a_report_is_what_its_name_says(
    words: list[str], begin: str, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert report(kept, *words).exit_code == 0
    assert (tmp_path / words[1]).read_text().startswith(begin)


def test_the_status_tells_that_evidence_was_not_read_or_is_doubtful(tmp_path: Path) -> None:
    lines = gzip.decompress(SAMPLE_LOG.read_bytes()).decode().splitlines()[:40]
    cut = [line[:-40] for line in lines[:10]]
    (tmp_path / "cut.log").write_text("\n".join([*lines, *cut]))
    (tmp_path / "strange.txt").write_text("hello\n")
    asked = (tmp_path / "cut.log", "-o", tmp_path / "ticket.md", "--format", "md")
    assert report(*asked).exit_code == 0
    done = report(*asked, "--doubt-from", "0.1")
    warning = next(line for line in done.stderr.splitlines() if "WARNING: cut.log: 10 of " in line)
    assert done.exit_code == 3
    assert warning.removeprefix("report: ") in (tmp_path / "ticket.md").read_text()
    assert report(*asked, tmp_path / "strange.txt").exit_code == 1
    assert "strange.txt: not read: " in (tmp_path / "ticket.md").read_text()
