"""What ``muster`` offers where somebody presses the tab key, and says where it can't do what it is told."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from coordinator_udf.commands.app import COMMANDS, EXAMPLES
from tests.conftest import ROOT, SAMPLE_LOG

_MUSTER = "import sys; sys.argv[0] = 'muster'; from coordinator_udf.commands.app import main; main()"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("muster rep", ["replay", "report"]),
        ("muster replay --o", ["--out", "--one-broker", "--overwrite"]),
        ("muster offsets mi", ["migrate"]),
        ("muster offsets migrate --gr", ["--group"]),
    ],
)
def test_a_shell_completes_commands_and_options(line: str, offered: list[str]) -> None:
    asked = {
        "_MUSTER_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
        "PYTHONPATH": str(ROOT),
    }
    ran = subprocess.run([sys.executable, "-c", _MUSTER], env=asked, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == offered


@pytest.mark.parametrize("command", EXAMPLES)
def test_each_commands_help_has_examples_to_copy(command: str) -> None:
    lines = help_lines(command)
    assert EXAMPLES[command]
    for example in EXAMPLES[command]:
        assert f"  {example}" in lines
        explained = help_lines(*example.split()[1:3]) if command == "offsets" else lines
        for option in re.findall(r" (--?[a-z-]+)", example):
            assert any(re.match(rf"  (-\w, )?{option}\b|  {option},", line) for line in explained), option


def told(*words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    arguments = [sys.executable, "-c", _MUSTER, *words]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True).stdout


def help_lines(*words: str) -> list[str]:
    return told(*words, "--help").splitlines()


@pytest.mark.parametrize("words", [(), ("offsets",)])
def test_what_commands_do_is_told_whole(words: tuple[str, ...]) -> None:
    listed = told(*words, "--help").partition("Commands:")[2].partition("Examples:")[0]
    assert listed
    assert "..." not in listed


JOBS = sorted(path.stem for path in (ROOT / "jobs").glob("[a-z]*.py"))


@pytest.mark.parametrize("job", JOBS)
def test_a_jobs_options_are_told_whole(job: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    command = [sys.executable, str(ROOT / "jobs" / f"{job}.py"), "--help"]
    helped = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "  --" in helped
    assert "…" not in helped
    assert "─" not in helped


def test_the_version_is_told() -> None:
    assert told("--version") == f"muster {version('muster')}\n"


def test_all_commands_have_examples() -> None:
    assert EXAMPLES.keys() == {*COMMANDS, "offsets"}


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["offsets", "migrate", "--group", "g", "--upstream", "127.0.0.1:1", "--gateway", "127.0.0.1:1"], 1,
         "offsets: the cluster at 127.0.0.1:1 can't be asked"),
        (["offsets", "export", "--tables", "nowhere"], 2, "offsets: nowhere holds no records"),
        (["sql", "--root", "nowhere"], 2, "sql: no table in nowhere"),
        (["compact", "--tables", "nowhere"], 2, "nowhere/consumer_offsets is no Delta table"),
        (["report", "nowhere.log"], 2, "report: there is no input nowhere.log"),
        (["report", str(SAMPLE_LOG), "-o", "/proc/incident.html"], 2, "report: /proc/incident.html can't be written"),
        (["replay", "nowhere.log"], 2, "replay: there is no input nowhere.log"),
        (["live", "--config", "nowhere.toml"], 2, "coordinator: there is no settings file nowhere.toml"),
        (["live", "--log", "kafka://here"], 2, "coordinator: --source is embedded and --log kafka://here"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_is_wrong_is_told_in_a_line_and_nothing_is_made(
    words: list[str], status: int, told: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", _MUSTER, *words],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == status
    (line,) = ran.stderr.splitlines()
    assert told in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "text", "status"),
    [
        (["replay", "--out", "out"], "", 0),
        (["replay", "--out", "out"], "hello\n", 1),
        (["report", "-o", "incident.html"], "", 0),
    ],
    ids=["replay with an empty file", "replay with a strange file", "report with an empty file"],
)
def test_what_was_not_read_is_said_and_the_rest_is_used(
    command: list[str], text: str, status: int, tmp_path: Path
) -> None:
    """A log that was rotated a moment ago is empty: nothing of it is lost."""
    (tmp_path / "other.log").write_text(text)
    ran = subprocess.run(
        [sys.executable, "-c", _MUSTER, *command, "other.log", str(SAMPLE_LOG)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == status, ran.stderr
    assert "other.log: not read: other.log is " in ran.stdout + ran.stderr
    assert (tmp_path / command[-1]).exists()


def test_a_report_says_loudly_that_a_log_ends_within_a_line(tmp_path: Path) -> None:
    lines = gzip.decompress(SAMPLE_LOG.read_bytes()).decode().splitlines(keepends=True)[:60]
    (tmp_path / "cut.log").write_text("".join(lines)[:-40])
    ran = subprocess.run(
        [sys.executable, "-c", _MUSTER, "report", "--format", "md", "-o", "ticket.md", "cut.log"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cut.log: rejected 1, the first one: line 60: " in ran.stderr
    assert "cut.log: rejected 1, the first one: line 60: " in (tmp_path / "ticket.md").read_text()


def test_a_report_goes_from_standard_input_to_standard_output(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _MUSTER, "report", "--format", "md", "-o", "-", "-"],
        input=SAMPLE_LOG.read_bytes(),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert ran.stderr.decode() == "report: 2 groups, 9 rebalances\n"
    text = ran.stdout.decode()
    assert "stdin: requests 457, answered 457" in text
    assert text.startswith("# ")
    assert list(tmp_path.iterdir()) == []
